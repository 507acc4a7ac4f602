"""Dead letters over HTTP: who sees them, and sending them again after repair, each event once."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from frazil.bus.memory import MemoryBus
from frazil.events import first_position
from frazil.events.positions import position
from frazil.gateway.http.routes import dead_letters as routes
from frazil.lake.catalog import WATERMARK, Lake
from frazil.lake.derived import DeadLetter, add_dead_letters, read_dead_letters
from frazil.pipeline.commit.isolation import RefusedEvent
from frazil.pipeline.commit.row_errors import RowsRefused
from tests.gateway.http.harness import Running, commit, event, on_the_bus


async def bury(gateway: Running, bus: MemoryBus, lake: Lake, name: str = "main.orders") -> None:
    """What the pipeline does with events that cannot be staged, here with all that wait: dead letters, watermark."""
    table = lake.table(name)
    events = await on_the_bus(bus, lake, name)
    letters: list[DeadLetter] = RefusedEvent(events, RowsRefused("no file can hold it")).letters(
        table.spec, events["_received_at"][0].as_py()
    )
    add_dead_letters(lake, table, letters)
    stream = await bus.open(table.stream)
    head = await stream.head()
    lake.set_properties(name, {WATERMARK: str(first_position(head + 1))})
    await stream.trim(head + 1)
    await gateway.gateway.directory.refresh()


async def resend(gateway: Running, **body: Any) -> dict[str, Any]:
    answer = await gateway.http.post("/v1/tables/orders/dead-letters/resend", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_they_are_listed_counted_and_read_as_a_table(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    listed = (await gateway.http.get("/v1/tables/orders/dead-letters")).json()
    assert listed == {"table": "orders", "total": 0, "dead_letters": []}
    await gateway.accept([event("a", actor="me"), event("b", "snow", 2)])
    await bury(gateway, memory_bus, lake)
    listed = (await gateway.http.get("/v1/tables/orders/dead-letters?limit=1")).json()
    assert listed["total"] == 2
    [letter] = listed["dead_letters"]
    assert (letter["position"], letter["id"], letter["actor"]) == (position(1, 0), "a", "me")
    assert letter["data"] == '{"item":"ice","amount":1}' and letter["reason"] == "no file can hold it"
    told = (await gateway.http.get("/v1/status")).json()["tables"]["orders"]
    assert told["dead_letters"] == 2 and told["lag"]["events"] == 0
    families = text_string_to_metric_families((await gateway.http.get("/metrics")).text)
    samples = {(s.name, s.labels.get("table")): s.value for family in families for s in family.samples}
    assert samples["frazil_table_dead_letters", "main.orders"] == 2


async def test_sent_again_they_keep_their_ids_and_count_once(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    await gateway.accept([event("a"), event("b", "snow", 2), event("c")])
    await bury(gateway, memory_bus, lake)
    assert await resend(gateway, positions=[position(1, 1)]) == {
        "table": "orders",
        "resent": 1,
        "left": 2,
        "refused": [],
    }
    assert (await on_the_bus(memory_bus, lake))["_id"].to_pylist() == ["b"]
    assert (await resend(gateway))["resent"] == 2
    assert (await resend(gateway)) == {"table": "orders", "resent": 0, "left": 0, "refused": []}
    await commit(memory_bus, lake)
    rows = pa.Table.from_batches(list(lake.table("main.orders").scan(["_id", "item", "amount"]))).to_pylist()
    assert sorted((row["_id"], row["item"], row["amount"]) for row in rows) == [
        ("a", "ice", 1),
        ("b", "snow", 2),
        ("c", "ice", 1),
    ]


async def test_a_producer_that_sends_a_repaired_event_under_the_same_id_is_heard(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    """Before it became a dead letter its id had counted: the repaired event is no duplicate of it, and no conflict."""
    await gateway.accept([event("a", "broken")])
    assert (await gateway.accept([event("a", "broken")]))["duplicates"] == 1
    await bury(gateway, memory_bus, lake)
    assert (await gateway.accept([event("a", "repaired")]))["accepted"] == 1
    assert (await gateway.accept([event("a", "repaired")]))["duplicates"] == 1
    # Then the dead letter of the same id contradicts what is there, and stays where it is.
    told = await resend(gateway)
    assert told["resent"] == 0 and told["left"] == 1
    assert [(one["id"], one["error"]["code"]) for one in told["refused"]] == [("a", "id_conflict")]
    wanted = {"positions": [told["refused"][0]["position"]]}
    answer = await gateway.http.post("/v1/tables/orders/dead-letters/discard", json=wanted)
    assert answer.json() == {"table": "orders", "discarded": 1, "left": 0}
    assert (await gateway.http.post("/v1/tables/orders/dead-letters/discard", json={})).status_code == 422


async def test_a_resend_that_was_killed_before_the_letters_were_taken_out_is_done_again(
    gateway: Running, memory_bus: MemoryBus, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.accept([event("a"), event("b")])
    await bury(gateway, memory_bus, lake)

    def killed(*words: Any) -> int:
        raise RuntimeError("as a kill does")

    with monkeypatch.context() as patch:
        patch.setattr(routes, "remove_dead_letters", killed)
        assert (await gateway.http.post("/v1/tables/orders/dead-letters/resend", json={})).status_code == 500
    assert len(read_dead_letters(lake, "main.orders")) == 2
    assert (await resend(gateway))["resent"] == 2
    assert (await on_the_bus(memory_bus, lake))["_id"].to_pylist() == ["a", "b"], "each id once"


async def test_what_is_not_settled_is_not_sent_again(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    """A pipeline was killed between the dead letters and the commit: its successor must find them."""
    await gateway.accept([event("a")])
    watermark = lake.table("main.orders").watermark
    await bury(gateway, memory_bus, lake)
    lake.set_properties("main.orders", {WATERMARK: str(watermark)})
    assert (await resend(gateway)) == {"table": "orders", "resent": 0, "left": 1, "refused": []}


async def test_what_fails_again_is_a_new_dead_letter(gateway: Running, memory_bus: MemoryBus, lake: Lake) -> None:
    await gateway.accept([event("a")])
    await bury(gateway, memory_bus, lake)
    await resend(gateway)
    await bury(gateway, memory_bus, lake)
    [letter] = read_dead_letters(lake, "main.orders")
    assert (letter["id"], letter["position"]) == ("a", position(2, 0))
    assert (await resend(gateway))["resent"] == 1


async def test_who_may_read_the_whole_table_sees_them_and_only_admins_send_again(
    gateway: Running, memory_bus: MemoryBus, lake: Lake
) -> None:
    await gateway.accept([event("a")])
    await bury(gateway, memory_bus, lake)

    async def asked(grants: list[Any]) -> tuple[int, int]:
        made = await gateway.http.post("/v1/tokens", json={"name": "t", "grants": grants})
        assert made.status_code == 201, made.text
        headers = {"authorization": f"Bearer {made.json()['token']}"}
        seen = await gateway.http.get("/v1/tables/orders/dead-letters", headers=headers)
        sent: httpx.Response = await gateway.http.post(
            "/v1/tables/orders/dead-letters/resend", json={}, headers=headers
        )
        return seen.status_code, sent.status_code

    assert await asked(["read:orders"]) == (200, 403)
    assert await asked([{"scope": "read:orders", "mask": ["item"]}]) == (403, 403)
    assert await asked(["read:clicks"]) == (404, 403)
    assert len(read_dead_letters(lake, "main.orders")) == 1


@pytest.mark.parametrize("body", [[], {"position": 1}, {"positions": 1}, {"positions": ["1"]}, {"positions": [True]}])
async def test_a_bad_resend_is_refused(gateway: Running, body: Any) -> None:
    answer = await gateway.http.post("/v1/tables/orders/dead-letters/resend", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_resend")


async def test_a_name_too_long_for_its_dead_letters_is_refused(gateway: Running) -> None:
    answer = await gateway.http.post("/v1/tables", json={"name": "x" * 50, "columns": {"a": "long"}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_table_name")
    assert (await gateway.http.post("/v1/tables", json={"name": "x" * 49, "columns": {}})).status_code == 201
