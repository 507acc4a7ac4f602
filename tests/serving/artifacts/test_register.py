"""The life of artifacts as pure rules: random lives keep their promises, and each rule has its example."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from frazil.errors import Conflict, DataLoss, FrazilError, NotFound
from frazil.serving.artifacts import ArtifactState, Manifest, Register, SourceState
from frazil.serving.artifacts.manifest import Counts, Seal
from frazil.serving.artifacts.register import Policy, to_remove

POLICY = Policy(keep=3, grace_seconds=100, silent_seconds=50, lease_seconds=10)


def manifest(generation: str, watermark: int, stream: str = "s") -> Manifest:
    cut = SourceState(stream, watermark, snapshot_id=watermark)
    return Manifest("t", generation, "", cut, (), None, Counts(1, 1, 1, 0, 0), (), {})


def with_candidate(register: Register, generation: str, watermark: int, now: float = 0, stream: str = "s") -> Register:
    entered = register.entered(manifest(generation, watermark, stream), Seal(1, "x"), now)
    return entered.published(generation, now)


def served(*watermarks: int) -> Register:
    """g0, g1, … each promoted in its turn, one second after the other."""
    register = Register("t")
    for number, watermark in enumerate(watermarks):
        register = with_candidate(register, f"g{number}", watermark, now=number).promoted(f"g{number}", now=number)
    return register


def states(register: Register) -> dict[str, str]:
    return {entry.generation: entry.state.value for entry in register.entries}


def code_of(error: pytest.ExceptionInfo[FrazilError]) -> str:
    return error.value.code


def test_a_life() -> None:
    register = Register("t").entered(manifest("g0", 1), Seal(1, "x"), 0)
    assert states(register) == {"g0": "building"}
    assert states(register.published("g0", 1)) == {"g0": "candidate"}
    assert states(served(1, 2, 3)) == {"g0": "stale", "g1": "previous", "g2": "current"}


def test_promoting_twice_changes_nothing() -> None:
    register = served(1, 2)
    assert register.promoted("g1", 99) is register


def test_never_to_an_older_one_except_on_purpose() -> None:
    register = with_candidate(served(5), "g9", 4)
    with pytest.raises(Conflict) as refused:
        register.promoted("g9", 9)
    assert code_of(refused) == "artifact_older"
    assert states(register.promoted("g9", 9, going_back=True)) == {"g0": "previous", "g9": "current"}
    assert states(with_candidate(served(5), "g9", 5).promoted("g9", 9))["g9"] == "current", "another index of the same"


def test_after_a_change_of_the_stream_the_later_build_is_newer() -> None:
    register = with_candidate(served(1 << 40), "g5", 3, stream="other").promoted("g5", 9)
    assert states(register) == {"g0": "previous", "g5": "current"}
    with pytest.raises(Conflict):
        with_candidate(register, "g4", 1 << 50).promoted("g4", 10)


def test_what_is_not_complete_is_not_promoted() -> None:
    register = Register("t").entered(manifest("g0", 1), Seal(1, "x"), 0)
    for broken in (register, register.doomed("g0", 1)):
        with pytest.raises(Conflict) as refused:
            broken.promoted("g0", 2)
        assert code_of(refused) == "artifact_incomplete"
    with pytest.raises(NotFound):
        register.promoted("other", 2)


def test_going_back_and_staying_there() -> None:
    register = served(1, 2, 3).rolled_back(10, "wrong answers")
    assert states(register) == {"g0": "previous", "g1": "current", "g2": "stale"}
    assert register.named("g2").withdrawn == "wrong answers"
    with pytest.raises(Conflict) as refused:
        register.promoted("g2", 11)
    assert code_of(refused) == "artifact_withdrawn"
    again = register.promoted("g2", 11, going_back=True)
    assert states(again) == {"g0": "stale", "g1": "previous", "g2": "current"} and not again.named("g2").withdrawn
    assert states(register.rolled_back(12, "again")) == {"g0": "current", "g1": "stale", "g2": "stale"}


def test_many_who_see_it_fail_go_back_once() -> None:
    once = served(1, 2, 3).rolled_back(10, "canary", failed="g2")
    assert once.rolled_back(11, "canary", failed="g2") is once


def test_nothing_to_go_back_to() -> None:
    for register in (Register("t"), served(1)):
        with pytest.raises(Conflict) as refused:
            register.rolled_back(1, "")
        assert code_of(refused) == "artifact_no_previous"


def test_a_builder_that_was_given_up_is_told() -> None:
    building = Register("t").entered(manifest("g0", 1), Seal(1, "x"), 0)
    for register in (Register("t"), building.doomed("g0", 9)):
        for step in (register.published, register.touched):
            with pytest.raises(Conflict) as refused:
                step("g0", 10)
            assert code_of(refused) == "artifact_given_up"
    with pytest.raises(Conflict):
        building.entered(manifest("g0", 1), Seal(1, "x"), 1)


def due(register: Register, now: float, held: tuple[str, ...] = ()) -> list[str]:
    return [entry.generation for entry in to_remove(register, POLICY, now, held)]


def test_stale_ones_go_when_they_are_many_and_old_and_nobody_reads_them() -> None:
    register = served(*range(1, 7))
    assert due(register, 50) == [], "all of them served a moment ago"
    assert due(register, 1000) == ["g0", "g1", "g2"], "three are kept"
    assert due(register, 1000, held=("g1",)) == ["g0", "g2"]
    assert due(register, 103) == ["g0"], "g1 left its place as previous at 3"


def test_a_silent_builder_is_dead_and_one_that_speaks_is_not() -> None:
    register = Register("t").entered(manifest("g0", 1), Seal(1, "x"), 0)
    assert due(register, 50) == []
    assert due(register, 51) == ["g0"]
    assert due(register.touched("g0", 40), 51) == []


def test_candidates_that_nobody_wants_go_too() -> None:
    register = served(5, 6, 7)
    for number in range(4):
        register = with_candidate(register, f"c{number}", 1, now=10)
    assert due(register, 50) == []
    assert due(register, 1000) == ["c0", "c1", "c2", "c3"]
    later = with_candidate(register, "z", 8, now=20).promoted("z", 21)
    assert states(later)["c3"] == "stale"


def test_a_register_comes_back_as_it_was() -> None:
    register = served(1, 2, 3).rolled_back(10, "x")
    assert Register.decode("t", register.encode()) == register
    for table, raw in (("u", register.encode()), ("t", b"{}"), ("t", replace(register, format=2).encode())):
        with pytest.raises(DataLoss):
            Register.decode(table, raw)


class Lives(RuleBasedStateMachine):
    """Builders, operators and clean-ups in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.register = Register("t")
        self.now = 0.0
        self.number = 0

    def name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([entry.generation for entry in self.register.entries]))

    @rule(seconds=st.floats(0.1, 80))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(watermark=st.integers(1, 30), stream=st.sampled_from("aab"))
    def enter(self, watermark: int, stream: str) -> None:
        self.number += 1
        made = manifest(f"g{self.number:04d}", watermark, stream)
        self.register = self.register.entered(made, Seal(1, "x"), self.now)

    @precondition(lambda self: self.register.entries)
    @rule(data=st.data(), step=st.sampled_from(["touched", "published", "promoted"]))
    def step(self, data: st.DataObject, step: str) -> None:
        with contextlib.suppress(Conflict):
            self.register = getattr(self.register, step)(self.name(data), self.now)

    @precondition(lambda self: self.register.entries)
    @rule(data=st.data())
    def promote_back(self, data: st.DataObject) -> None:
        with contextlib.suppress(Conflict):
            self.register = self.register.promoted(self.name(data), self.now, going_back=True)

    @precondition(lambda self: self.register.previous)
    @rule()
    def roll_back(self) -> None:
        before = self.register
        self.register = before.rolled_back(self.now, "x")
        assert before.previous and self.register.current
        assert self.register.current.generation == before.previous.generation

    @rule(finish=st.booleans(), data=st.data())
    def tidy(self, finish: bool, data: st.DataObject) -> None:
        held = data.draw(st.sets(st.sampled_from([e.generation for e in self.register.entries] or ["-"])))
        for entry in list(to_remove(self.register, POLICY, self.now, held)):
            assert entry.state not in (ArtifactState.CURRENT, ArtifactState.PREVIOUS)
            assert entry.generation not in held
            self.register = self.register.doomed(entry.generation, self.now)
            if finish:
                self.register = self.register.removed(entry.generation)

    @invariant()
    def one_current_and_one_previous(self) -> None:
        found = [entry.state for entry in self.register.entries]
        assert found.count(ArtifactState.CURRENT) <= 1 and found.count(ArtifactState.PREVIOUS) <= 1
        assert ArtifactState.PREVIOUS not in found or ArtifactState.CURRENT in found
        served_before = [e for e in self.register.entries if e.promoted_at is not None]
        assert not served_before or self.register.current, "what was served once is followed by something"

    @invariant()
    def what_is_kept_is_bounded_once_time_passes(self) -> None:
        later = self.register
        for entry in list(to_remove(later, POLICY, self.now + 1e6, ())):
            later = later.doomed(entry.generation, self.now).removed(entry.generation)
        assert len(later.entries) <= max(POLICY.keep, 2)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
