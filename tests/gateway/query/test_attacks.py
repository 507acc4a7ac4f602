"""Every attack of the list against real workers: it is refused, nothing happened, others are answered."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import httpx
import pytest

from tests.gateway.query.conftest import House
from tests.serving.sql.attacks import ATTACKS, BOMBS, PLACE, Attack

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

CANARY = "canary-value-that-nobody-may-see"
_EXPECTED = {"bad_sql": 422, "sql_refused": 422, "function_not_allowed": 422, "table_not_found": 404}
# The gateway refuses these before any wall is asked; and one bomb is too large a text before it is too much memory.
_SOONER = ("sql_too_large", "bad_query", "conversion_failed")
_AROUND = {attack.sql: attack for attack in ATTACKS}
# What an answer must not show: of the machine, of the engine, and of a table that the caller may not read.
_LEAKS = ("root:", "/proc/", "site-packages", "duckdb_", "memory_limit", "warehouse/", CANARY, "PATH=", "HOME=")


# What only takes time ends with its time, be it short; what is refused for its form needs as long as that takes.
_ENDS = {"time bombs": 1, "nesting": 120}


def _name(attack: Attack) -> str:
    return f"{attack.family}-{hashlib.sha256(attack.sql.encode()).hexdigest()[:6]}"


def _everything(folder: Path) -> dict[str, tuple[int, int]]:
    """The files of the data directory but those that every query writes to."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "audit" not in path.parts and not path.name.startswith("catalog.db"):
            found[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


@pytest.fixture(scope="module")
def place() -> Path:
    """The folder that attacks try to write to: it exists and could be written to, were it not for the walls."""
    folder = Path(PLACE)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    for left in folder.iterdir():
        left.unlink()
    return folder


class Callers:
    """The attacker, who may read one table, and a neighbour who reads another."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.attacker = self.neighbour = self.own = self.secret = ""

    async def prepare(self) -> None:
        self.own = "notes"
        await self.house.running.declare(name=self.own, columns={"item": "string", "amount": "long"})
        await self.house.send(self.own, {"item": "mine", "amount": 1})
        await self.house.running.declare(name="secret", columns={"item": "string"})
        await self.house.send("secret", {"item": CANARY})
        await self.house.commit("secret")
        await self.house.running.gateway.directory.refresh()
        self.attacker = await self.house.token("sql", f"read:{self.own}", rate_per_second=10_000)
        self.neighbour = await self.house.token("sql", "read:secret", rate_per_second=10_000)

    async def neighbour_is_answered(self) -> None:
        rows = await self.house.rows("SELECT item FROM secret", token=self.neighbour, timeout_s=60)
        assert rows == [[CANARY]]


_callers: dict[int, Callers] = {}


async def callers_of(house: House) -> Callers:
    if id(house) not in _callers:
        _callers.clear()
        _callers[id(house)] = Callers(house)
        await _callers[id(house)].prepare()
    return _callers[id(house)]


def check(attack: Attack, answer: httpx.Response) -> None:
    for leak in _LEAKS:
        # The words of the statement itself may come back in a message or as a column's name.
        assert leak not in answer.text.replace(attack.sql, "") or leak in attack.sql.lower(), leak
    if answer.status_code == 200:
        assert "truncated" in attack.expect, f"answered: {answer.text[:300]}"
        return
    code = answer.json()["error"]["code"]
    assert code in attack.expect or code in _SOONER, answer.text[:500]
    assert answer.status_code == _EXPECTED.get(code, answer.status_code)


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a not in BOMBS], ids=_name)
async def test_refused_and_nothing_happened(house: House, place: Path, attack: Attack) -> None:
    callers = await callers_of(house)
    before = _everything(house.folder)
    answer, _ = await asyncio.gather(
        house.ask(attack.sql, token=callers.attacker, timeout_s=20), callers.neighbour_is_answered()
    )
    check(attack, answer)
    assert _everything(house.folder) == before
    assert os.listdir(place) == []
    # The worker that was attacked, or its successor, still shows the attacker its own table, and only that.
    assert await house.rows(f"SELECT item FROM {callers.own}", token=callers.attacker) == [["mine"]]
    status, code = await house.refused("SELECT * FROM secret", token=callers.attacker)
    assert (status, code) == (404, "table_not_found")


@pytest.mark.parametrize("attack", BOMBS, ids=_name)
async def test_bombs_end_while_others_are_answered(house: House, place: Path, attack: Attack) -> None:
    callers = await callers_of(house)
    bomb = asyncio.create_task(house.ask(attack.sql, token=callers.attacker, timeout_s=_ENDS.get(attack.family, 3)))
    answered = 0
    while not bomb.done():
        await callers.neighbour_is_answered()
        answered += 1
    check(attack, await bomb)
    assert answered > 0
    assert os.listdir(place) == []
    await callers.neighbour_is_answered()


async def test_there_are_enough_of_them() -> None:
    assert len(_AROUND) == len(ATTACKS) >= 60
    assert len({attack.family for attack in ATTACKS}) >= 10
