from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from frazil.errors import NotFound
from frazil.lake import Lake, Upkept, answer_to, ask, remember, result_of, upkept, waiting


def test_a_request_waits_until_it_is_answered(lake: Lake) -> None:
    registry = lake.registry
    first = ask(registry, "main.a", "compact", sort=("v",))
    second = ask(registry, "main.b", "expire")
    assert waiting(registry) == [first, second], "in the order in which they came"
    assert result_of(registry, first.id) is None
    answer_to(registry, first, {"state": "done", "steps": []})
    answer_to(registry, first, {"state": "done", "steps": ["a pipeline that died before it forgot the request"]})
    assert waiting(registry) == [second]
    told = result_of(registry, first.id)
    assert told is not None and told["state"] == "done" and told["steps"] == []
    with pytest.raises(NotFound):
        result_of(registry, "unheard-of")


def test_answers_of_the_past_are_forgotten(lake: Lake) -> None:
    registry = lake.registry
    old = msgspec.json.encode({"id": "old", "at": datetime.now(UTC) - timedelta(days=2), "state": "done"})
    registry.put("maintenance/result/old", old, None)
    answer_to(registry, ask(registry, "main.a", "expire"), {"state": "done"})
    assert [document.key for document in registry.list("maintenance/result/")] != []
    with pytest.raises(NotFound):
        result_of(registry, "old")


def test_it_is_remembered_when_a_table_was_looked_after(lake: Lake) -> None:
    now = datetime.now(UTC)
    assert upkept(lake.registry, "u") == Upkept()
    remember(lake.registry, "u", Upkept(compacted_at=now))
    remember(lake.registry, "u", Upkept(compacted_at=now, orphans_sought_at=now))
    assert upkept(lake.registry, "u") == Upkept(now, now)
