"""When entities are folded: one whose fold fails keeps no other from its turn, and one that cost the engine waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frazil.pipeline.commit.suspects import Suspects, fold_of
from frazil.pipeline.entities import FoldLimits, FoldScheduler
from frazil.pipeline.entities import fold_scheduler as module

LOCATIONS = {name: name for name in ("a", "a__history", "b", "b__history")}


class FakeFolder:
    def __init__(self, name: str, folded: list[str]) -> None:
        self._name = name
        self._folded = folded

    def load(self) -> Any:
        return SimpleNamespace(unfolded_rows=1)

    def fold(self) -> None:
        self._folded.append(self._name)
        if self._name == "a":
            raise RuntimeError("an error that nobody expected")

    def tidy(self, *, keep_snapshots: int) -> int:
        return 0


@pytest.fixture
def suspects(tmp_path: Path) -> Suspects:
    return Suspects(tmp_path / "suspects.json")


async def folded_in_a_while(suspects: Suspects, wanted: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    folded: list[str] = []
    folding = FoldScheduler(
        make_folder=lambda name: FakeFolder(name, folded),
        limits=FoldLimits(max_rows=1),
        snapshot_budget=10,
        note=lambda kind, **entry: None,
        locations=lambda: dict(LOCATIONS),
        suspects=suspects,
    )
    task = asyncio.create_task(folding.run(lambda: False))
    async with asyncio.timeout(60):
        while folded.count(wanted) < 3:
            assert not task.done()
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    return folded


async def test_an_entity_whose_fold_fails_keeps_no_other_from_its_turn(
    suspects: Suspects, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "a" in await folded_in_a_while(suspects, "b", monkeypatch)


async def test_a_fold_that_the_engine_was_lost_amid_waits_while_others_go_on(
    suspects: Suspects, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError), suspects.fold("a"):
        raise RuntimeError
    assert suspects.lost() == [fold_of("a")]
    assert set(await folded_in_a_while(suspects, "b", monkeypatch)) == {"b"}
    monkeypatch.setattr(module, "_HELD_SECONDS", 0.0)
    assert "a" in await folded_in_a_while(suspects, "b", monkeypatch)
