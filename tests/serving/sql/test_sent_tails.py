"""What the pool sends of a tail, and what it lets a worker forget."""

from __future__ import annotations

import pyarrow as pa

from frazil.serving.sql import Relation
from frazil.serving.sql.sent_tails import SentTails, TailDelivery
from tests.serving.sql.tables import ROWS, rows, tail_of

WHOLE = rows(0, 50_000)


def deliver(ledger: SentTails, *cuts: tuple[str, int, int]) -> TailDelivery:
    return ledger.delivery(
        [Relation("main", "t", ROWS, None, None, tail=tail_of(key, WHOLE, start, end)) for key, start, end in cuts]
    )


def sent(delivery: TailDelivery) -> list[tuple[int, int]]:
    """First and last position of each buffer."""
    found = []
    for buffer in delivery.buffers:
        positions = pa.ipc.open_stream(buffer).read_all().column("_seq").to_pylist()
        found.append((positions[0], positions[-1]) if positions else (-1, -1))
    return found


def test_each_event_is_sent_once() -> None:
    ledger = SentTails(1 << 30)
    assert sent(deliver(ledger, ("k", 5, 10))) == [(5, 9)]
    assert sent(deliver(ledger, ("k", 5, 10))) == []
    assert sent(deliver(ledger, ("k", 7, 12))) == [(10, 11)]
    assert sent(deliver(ledger, ("other", 7, 12))) == [(7, 11)]


def test_an_empty_tail_is_sent_too_since_it_carries_the_columns() -> None:
    ledger = SentTails(1 << 30)
    assert sent(deliver(ledger, ("k", 5, 5))) == [(-1, -1)]
    assert sent(deliver(ledger, ("k", 5, 6))) == [(5, 5)]


def test_old_rows_are_let_go_when_they_are_many() -> None:
    ledger = SentTails(1 << 30)
    deliver(ledger, ("k", 0, 20_000))
    assert deliver(ledger, ("k", 9_000, 20_000)).tails == []
    (order,) = deliver(ledger, ("k", 19_000, 20_000)).tails
    assert (order["keep_from"], order["fresh"], order["buffer"]) == (19_000, False, None)
    # What was let go is sent again when it is wanted after all.
    delivery = deliver(ledger, ("k", 18_000, 20_000))
    assert sent(delivery) == [(18_000, 19_999)]
    assert delivery.tails[0]["fresh"]


def test_the_least_used_is_forgotten_when_memory_is_short() -> None:
    ledger = SentTails(2 * WHOLE.slice(0, 1000).nbytes)
    deliver(ledger, ("a", 0, 1000))
    deliver(ledger, ("b", 0, 900))
    deliver(ledger, ("a", 0, 1000))
    assert deliver(ledger, ("c", 0, 900)).forget == ["b"]
    assert sent(deliver(ledger, ("b", 0, 900))) == [(0, 899)]
    # What a statement uses is never forgotten for its own sake.
    assert deliver(ledger, ("x", 0, 1000), ("y", 0, 1000), ("z", 0, 1000)).forget


def test_there_is_a_limit_of_streams() -> None:
    ledger = SentTails(1 << 30)
    forgotten = [key for number in range(100) for key in deliver(ledger, (f"k{number}", 0, 1)).forget]
    assert forgotten == [f"k{number}" for number in range(36)]
