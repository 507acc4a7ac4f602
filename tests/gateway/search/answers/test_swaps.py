"""Swaps while searches come in: every answer is the one that its generation gives when all is quiet."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest

from frazil.serving.artifacts import ArtifactEntry
from tests.gateway.search.answers.conftest import SearchHouse, note

pytestmark = pytest.mark.asyncio(loop_scope="module")

SWAPS = 60
CLIENTS = 6
ASKED: list[dict[str, Any]] = [
    {"query": "harbour", "mode": mode, "freshness": freshness, "k": 100, **more}
    for mode in ("vector", "text", "hybrid")
    for freshness in ("live", "committed")
    for more in ({}, {"filter": "year % 3 = 0"})
]


def heard(answer: dict[str, Any]) -> Any:
    """What of an answer tells the generation that it is from."""
    return answer["fresh_rows"], [(hit["id"], hit["fresh"], hit["row"]["title"]) for hit in answer["hits"]]


async def test_every_answer_is_of_one_generation(house: SearchHouse) -> None:
    table = await house.notes()

    async def grow(first: int, stop: int) -> None:
        await house.publish(
            table, *(note(f"n{i}", f"harbour number {i}", title=f"Pier {i}", year=i) for i in range(first, stop))
        )

    async def built() -> ArtifactEntry:
        await house.commit(table)
        return await asyncio.to_thread(house.library.build, f"main.{table}")

    async def swap_to(entry: ArtifactEntry) -> None:
        await asyncio.to_thread(house.library.swap, f"main.{table}", entry, going_back=True)

    await grow(0, 30)
    older = await built()
    await swap_to(older)
    await grow(30, 40)
    newer = await built()
    await grow(40, 43)
    expected: dict[tuple[str, int], Any] = {}
    for entry in (newer, older, newer):
        await swap_to(entry)
        for number, asked in enumerate(ASKED):
            answer = await house.search(table, **asked)
            assert answer["generation"] == entry.generation
            quiet = expected.setdefault((entry.generation, number), heard(answer))
            assert heard(answer) == quiet
    for number, asked in enumerate(ASKED):
        told = [expected[entry.generation, number] for entry in (older, newer)]
        there = [name for i in range(43 if asked["freshness"] == "live" else 40) for name in [f"n{i}"]]
        wanted = {name for name in there if "filter" not in asked or int(name[1:]) % 3 == 0}
        assert [{name for name, *_ in hits} for _, hits in told] == [wanted, wanted], "the same, whatever serves"
        assert told[0] != told[1], "each answer tells its generation"

    over = asyncio.Event()
    wrong: list[Any] = []
    seen: list[str] = []

    async def client(seed: int) -> None:
        choose = random.Random(seed)
        while not over.is_set():
            number = choose.randrange(len(ASKED))
            answer = await house.ask_search(table=table, **ASKED[number])
            if answer.status_code != 200:
                wrong.append(answer.text)
                continue
            body = answer.json()
            seen.append(body["generation"])
            if heard(body) != expected.get((body["generation"], number)):
                wrong.append((ASKED[number], body))

    clients = [asyncio.create_task(client(seed)) for seed in range(CLIENTS)]
    for number in itertools.count():
        if number >= SWAPS and len(seen) > SWAPS and len({*seen}) == 2:
            break  # where searches are slow, more swaps are made until enough of them were seen
        assert number < 20 * SWAPS, "searches do not come to an end"
        await swap_to((older, newer)[number % 2])
    over.set()
    await asyncio.gather(*clients)
    assert not wrong, wrong[:3]
    assert {*seen} == {older.generation, newer.generation}
