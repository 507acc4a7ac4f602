"""Documents that processes share: compare-and-set, and change numbers that never overlook a change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine

from frazil.errors import Conflict, Unavailable
from frazil.lake.catalog import Lake
from frazil.registry import Registry


@pytest.fixture
def registry(lake: Lake) -> Registry:
    return lake.registry


@pytest.fixture
def processes(open_again: Callable[[], Lake]) -> Iterator[list[Registry]]:
    """The registries of four processes that start at the same moment on an empty database."""
    open_again().close()
    with ExitStack() as stack:
        lakes = [open_again() for _ in range(4)]
        for opened in lakes:
            stack.callback(opened.close)
        yield [opened.registry for opened in lakes]


def test_an_empty_one(registry: Registry) -> None:
    assert registry.version() == 0
    assert registry.get("a") is None
    assert registry.list() == []


def test_what_is_put_is_there(registry: Registry, open_again: Callable[[], Lake]) -> None:
    made = registry.put("token/a", b"\x00\xff one", None)
    assert registry.get("token/a") == made
    changed = registry.put("token/a", b"two", made.version)
    assert changed.version > made.version
    other = open_again()
    assert other.registry.get("token/a") == changed
    assert other.registry.version() == changed.version
    other.close()


def test_who_comes_second_is_told(registry: Registry) -> None:
    first = registry.put("a", b"1", None)
    with pytest.raises(Conflict):
        registry.put("a", b"again", None)
    second = registry.put("a", b"2", first.version)
    with pytest.raises(Conflict):
        registry.put("a", b"late", first.version)
    with pytest.raises(Conflict):
        registry.delete("a", first.version)
    with pytest.raises(Conflict):
        registry.put("absent", b"", 1)
    assert registry.get("a") == second
    assert registry.version() == second.version, "what was refused is no change"


def test_deleting_is_a_change_too(registry: Registry) -> None:
    made = registry.put("a", b"1", None)
    registry.delete("a", made.version)
    assert registry.get("a") is None
    assert registry.version() > made.version
    again = registry.put("a", b"2", None)
    assert again.version > made.version + 1, "a number is never given twice"


def test_listing_by_prefix_and_by_change(registry: Registry) -> None:
    # Nothing in a prefix is a wildcard, and A is not a.
    documents = {key: registry.put(key, key.encode(), None) for key in ["a%", "a/1", "a/2", "a_", "ab", "A/3", "b"]}
    assert [document.key for document in registry.list("a/")] == ["a/1", "a/2"]
    assert [document.key for document in registry.list("a_")] == ["a_"]
    assert [document.key for document in registry.list("a%")] == ["a%"]
    assert [document.key for document in registry.list("A")] == ["A/3"]
    assert {document.key for document in registry.list()} == set(documents)
    newer = registry.list("a", newer_than=documents["a/2"].version)
    assert {document.key for document in newer} == {"a_", "ab"}


def test_catalogs_in_one_database_do_not_meet(lake: Lake) -> None:
    one, two = lake.registry, Registry(lake.catalog.engine, "another")
    one.put("a", b"one", None)
    assert two.get("a") is None
    assert (two.version(), two.list()) == (0, [])
    two.put("a", b"two", None)
    found = one.get("a")
    assert found is not None and found.body == b"one"


def test_several_processes_make_it_at_once(processes: list[Registry]) -> None:
    start = threading.Barrier(len(processes))

    def put(number: int) -> None:
        start.wait(30)
        processes[number].put(f"document/{number}", b"", None)

    with ThreadPoolExecutor(len(processes)) as pool:
        for done in [pool.submit(put, number) for number in range(len(processes))]:
            done.result(60)
    assert len(processes[0].list("document/")) == len(processes)


def test_no_increment_is_lost(processes: list[Registry]) -> None:
    """Each adds 1 fifteen times by compare-and-set; whoever follows the change numbers sees the final state."""
    rounds = 15
    processes[0].put("sum", b"0", None)
    finished = threading.Event()

    def add(registry: Registry) -> None:
        for _ in range(rounds):
            for _ in range(1000):
                found = registry.get("sum")
                assert found is not None
                try:
                    registry.put("sum", str(int(found.body) + 1).encode(), found.version)
                    break
                except Conflict:
                    continue
            else:
                raise AssertionError("it never got through")

    def follow(registry: Registry) -> bytes:
        known, seen = 0, b""
        for _ in range(100_000):
            last = finished.is_set()
            version = registry.version()
            if version > known:
                for document in registry.list("sum", newer_than=known):
                    assert int(document.body) >= int(seen or b"0")
                    seen = document.body
                known = version
            if last:
                return seen
        raise AssertionError("the others never finished")

    with ThreadPoolExecutor(len(processes)) as pool:
        following = pool.submit(follow, processes[-1])
        adding = [pool.submit(add, registry) for registry in processes[:-1]]
        try:
            for done in adding:
                done.result(60)
        finally:
            finished.set()
        assert following.result(60) == str(rounds * len(adding)).encode()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from("abc"), st.integers(-1, 1))))
def test_it_does_as_a_dictionary_does(lake: Lake, steps: list[tuple[str, str, int]]) -> None:
    registry = lake.registry
    for document in registry.list():
        registry.delete(document.key, document.version)
    model: dict[str, tuple[int, bytes]] = {}
    for number, (verb, key, off) in enumerate(steps):
        held = model.get(key)
        expected = held[0] + off if held else None
        fits = off == 0 or held is None
        try:
            if verb == "put":
                made = registry.put(key, str(number).encode(), expected)
                model[key] = (made.version, made.body)
            else:
                registry.delete(key, expected or 1)
                del model[key]
            assert fits
        except Conflict:
            assert not fits or (verb == "delete" and held is None)
    assert {document.key: (document.version, document.body) for document in registry.list()} == model


def test_a_database_that_is_away() -> None:
    engine = create_engine("postgresql+pg8000://nobody@127.0.0.1:1/nothing")
    with pytest.raises(Unavailable) as refused:
        Registry(engine, "frazil").version()
    assert refused.value.code == "lake_unavailable"
