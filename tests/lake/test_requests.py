from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from frazil.errors import NotFound
from frazil.lake import (
    Lake,
    Upkept,
    answer_request,
    ask_upkeep,
    remember_upkeep,
    request_result,
    upkept,
    waiting_requests,
)


def test_a_request_waits_until_it_is_answered(lake: Lake) -> None:
    registry = lake.registry
    first = ask_upkeep(registry, "main.a", "compact", sort=("v",))
    second = ask_upkeep(registry, "main.b", "expire")
    assert waiting_requests(registry) == [first, second], "in the order in which they came"
    assert request_result(registry, first.id) is None
    answer_request(registry, first, {"state": "done", "steps": []})
    answer_request(registry, first, {"state": "done", "steps": ["a pipeline that died before it forgot the request"]})
    assert waiting_requests(registry) == [second]
    told = request_result(registry, first.id)
    assert told is not None and told["state"] == "done" and told["steps"] == []
    with pytest.raises(NotFound):
        request_result(registry, "unheard-of")


def test_answers_of_the_past_are_forgotten(lake: Lake) -> None:
    registry = lake.registry
    old = msgspec.json.encode({"id": "old", "at": datetime.now(UTC) - timedelta(days=2), "state": "done"})
    registry.put("maintenance/result/old", old, None)
    answer_request(registry, ask_upkeep(registry, "main.a", "expire"), {"state": "done"})
    assert [document.key for document in registry.list("maintenance/result/")] != []
    with pytest.raises(NotFound):
        request_result(registry, "old")


def test_it_is_remembered_when_a_table_was_looked_after(lake: Lake) -> None:
    now = datetime.now(UTC)
    assert upkept(lake.registry, "u") == Upkept()
    remember_upkeep(lake.registry, "u", Upkept(compacted_at=now))
    remember_upkeep(lake.registry, "u", Upkept(compacted_at=now, orphans_sought_at=now))
    assert upkept(lake.registry, "u") == Upkept(now, now)
