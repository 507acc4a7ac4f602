"""The connection table: never more than allowed, whatever comes, and never at the cost of a request."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from frazil.gateway.http.connection_table import ConnectionTable, Idle

ADDRESSES = ("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")
MOST, MOST_PER_ADDRESS = 10, 6


class Connection:
    def __init__(self, table: ConnectionTable[Connection], number: int) -> None:
        self.table = table
        self.number = number
        self.busy = False
        self.is_shed = False

    def shed(self) -> None:
        assert not self.busy, "a request is never given up for a connection"
        assert not self.is_shed
        self.is_shed = True


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.sampled_from(ADDRESSES)),
        st.tuples(st.sampled_from(["busy", "leave", *Idle]), st.integers(0, 30)),
    ),
    max_size=80,
)


@given(STEPS)
def test_no_place_is_lost_or_given_twice(steps: list[tuple[str | Idle, str | int]]) -> None:
    table: ConnectionTable[Connection] = ConnectionTable(MOST, MOST_PER_ADDRESS)
    found: dict[Connection, str] = {}
    for now, (what, which) in enumerate(steps):
        table.now = float(now)
        if isinstance(which, str):
            connection = Connection(table, now)
            if table.admit(connection, which):
                found[connection] = which
            for gone in [one for one in found if one.is_shed]:
                table.leave(gone)
                del found[gone]
        elif found:
            connection = list(found)[which % len(found)]
            if what == "busy":
                connection.busy = True
                table.busy(connection)
            elif isinstance(what, Idle):
                connection.busy = False
                table.idle(connection, what)
            else:
                table.leave(connection)
                del found[connection]
        assert set(table.connections()) == set(found)
        assert len(table) <= MOST
        of = Counter(
            ("10.0.0.2" if "10.0.0.2" in a else "net" if a.startswith("2001:db8::") else a) for a in found.values()
        )
        assert all(number <= MOST_PER_ADDRESS for number in of.values())
    for connection in list(found):
        table.leave(connection)
    assert len(table) == 0
    for number in range(MOST_PER_ADDRESS):
        assert table.admit(Connection(table, number), ADDRESSES[0]), "every place is there again"


def filled(*connections: tuple[str, Idle | None]) -> tuple[ConnectionTable[Connection], list[Connection]]:
    table: ConnectionTable[Connection] = ConnectionTable(len(connections), len(connections))
    opened = []
    for number, (address, kind) in enumerate(connections):
        connection = Connection(table, number)
        table.now = float(number)
        assert table.admit(connection, address)
        if kind is None:
            connection.busy = True
            table.busy(connection)
        else:
            table.idle(connection, kind)
        opened.append(connection)
    return table, opened


def shed(opened: list[Connection]) -> list[int]:
    return [connection.number for connection in opened if connection.is_shed]


def test_who_is_closed_first() -> None:
    table, opened = filled(
        ("a", Idle.TOKEN), ("b", Idle.NO_TOKEN), ("b", Idle.NO_REQUEST), ("b", Idle.NO_REQUEST), ("b", Idle.REFUSED)
    )
    for expected in ([4], [2, 4], [2, 3, 4]):
        newcomer = Connection(table, 9)
        assert table.admit(newcomer, "c")
        table.busy(newcomer)
        assert shed(opened) == expected
        for gone in [one for one in opened if one.is_shed]:
            table.leave(gone)


def test_an_address_with_few_connections_loses_none_to_one_with_many() -> None:
    table, opened = filled(("a", Idle.NO_REQUEST), ("b", None), ("b", None), ("b", None), ("c", None))
    assert not table.admit(Connection(table, 9), "b")
    assert shed(opened) == []
    assert table.admit(Connection(table, 9), "d")
    assert shed(opened) == [0]


def test_a_client_with_a_token_is_closed_only_after_a_pause() -> None:
    table, opened = filled(("a", Idle.TOKEN), ("a", None), ("b", None), ("b", None), ("b", None))
    assert not table.admit(Connection(table, 9), "c")
    table.now += 1
    assert table.admit(Connection(table, 9), "c")
    assert shed(opened) == [0]
