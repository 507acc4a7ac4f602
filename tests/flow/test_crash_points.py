"""kill -9 at every named crash point, with producers running, on the real parts; and a committer that sleeps too long.

The bus, the tables and the producers live through all of it: each killed part is followed by the next one, which takes
up what the kill left.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.bus import open_bus
from tests.contract.servers import NatsServer, running_nats
from tests.flow.checker import Verdict, in_sqlite, read_rows, verdict
from tests.flow.producers import COLUMNS, Producers, event
from tests.flow.product import PATIENCE_SECONDS, ROOT, Parts, eventually, nats_access, new_folder, running
from tests.processes import signal_to

TABLES = ("clicks", "orders")
_POINT = re.compile(r"^\s*crash_point\(\"(\w+)\"\)", re.MULTILINE)


def points(*places: str) -> list[str]:
    """The crash points in these parts of the source."""
    sources = [path for place in places for path in sorted((ROOT / "frazil").glob(place))]
    return [name for path in sources for name in _POINT.findall(path.read_text())]


# These are killed at in tests/pipeline/test_maintenance_on_spark.py, step by step.
OF_MAINTENANCE = points("pipeline/maintenance/spark_steps.py", "lake/maintenance/orphans.py")
# And these in tests/lake/test_catalog_rebuild.py and test_beyond.py, and in tests/gateway/http/test_purge.py.
OF_TABLES = points(
    "lake/catalog/lake.py",
    "lake/recovery/catalog_rebuild.py",
    "lake/maintenance/row_removal.py",
    "lake/catalog/purge.py",
    "gateway/purge.py",
)
# These in tests/pipeline/test_fold_on_spark.py and tests/lake/test_entity.py.
OF_ENTITIES = points("pipeline/entities/fold_committer.py", "lake/catalog/entity.py")
# These in tests/vault/test_kills.py, tests/pipeline/sources/csv/test_handler.py and tests/pipeline/sources/postgres:
# test_archive.py, test_refresh.py and test_refresh_kills.py.
OF_SOURCES = points(
    "vault/*.py", "lake/bulk/load_commit.py", "pipeline/sources/csv/*.py", "pipeline/sources/postgres/*.py"
)
# These in tests/serving/artifacts/, tests/contract/test_objects.py and tests/storage/test_append_log.py.
OF_ARTIFACTS = points("serving/artifacts/*.py", "storage/*.py")
# These in tests/pipeline/embeddings/test_kills.py.
OF_EMBEDDINGS = points("lake/derived/embeddings.py", "pipeline/embeddings/*.py")
# These in tests/gateway/search/test_kills.py.
OF_SERVED = points("serving/search/*.py", "gateway/search/*.py")
# These in tests/serving/builds/test_kills.py.
OF_BUILDS = points("serving/builds/*.py")
# These in tests/serving/trials/test_run.py.
OF_TRIALS = points("lake/derived/trials.py", "serving/trials/*.py")
# These in tests/lake/test_dead_letters.py and tests/pipeline: test_dead_letters_on_spark.py and test_suspects.py.
OF_DEAD_LETTERS = points("lake/derived/dead_letters.py", "pipeline/commit/isolation.py", "pipeline/commit/suspects.py")
ELSEWHERE = [
    *OF_MAINTENANCE,
    *OF_TABLES,
    *OF_ENTITIES,
    *OF_SOURCES,
    *OF_ARTIFACTS,
    *OF_EMBEDDINGS,
    *OF_SERVED,
    *OF_BUILDS,
    *OF_TRIALS,
    *OF_DEAD_LETTERS,
]
OF_PIPELINE = [name for name in points("pipeline/**/*.py", "lake/**/*.py") if name not in ELSEWHERE]
OF_GATEWAY = [name for name in points("gateway/**/*.py", "runtime/**/*.py", "tables/**/*.py") if name not in ELSEWHERE]


def test_every_point_in_the_code_belongs_to_a_part_that_is_killed_there() -> None:
    assert sorted(OF_PIPELINE + ELSEWHERE + OF_GATEWAY) == sorted(points("**/*.py"))
    assert len(OF_PIPELINE) >= 10 and len(OF_GATEWAY) >= 5


class Rig:
    def __init__(self, folder: Path, server: NatsServer) -> None:
        self.server = server
        self.logs = folder / "producers"
        self.product = Parts(folder / "data", nats_access(server))

    def producers(self) -> Producers:
        return Producers(
            self.product.url,
            self.product.token,
            TABLES,
            self.logs,
            events_per_request=10,
            pause_seconds=0.1,
        )

    def verdict(self) -> Verdict:
        locate = in_sqlite(self.product.data / "catalog.db")
        return verdict(self.logs, {table: read_rows(locate, table) for table in TABLES})

    def stored(self) -> int:
        """How many rows there are; none before the first commit."""
        return self.verdict().stored

    def was_hit(self, point: str) -> bool:
        return (self.product.trace / point).exists()

    def delete_stream(self, table: str) -> None:
        """As a person at the bus who takes the wrong one."""
        stream = self.product.ask("GET", f"/v1/tables/{table}").json()["stream"]

        async def delete() -> None:
            bus = await open_bus(self.server.url, credentials=self.server.credentials)
            await bus.delete(stream)
            await bus.close()

        asyncio.run(delete())


@contextmanager
def new_rig() -> Iterator[Rig]:
    with new_folder("points") as folder, running_nats() as server:
        found = Rig(folder, server)
        with running(found.product):
            yield found


@pytest.fixture
def rig() -> Iterator[Rig]:
    with new_rig() as found:
        yield found


def one_event(name: str, **more: Any) -> dict[str, Any]:
    made = event(name, 1, 1)
    return {"events": [{**made, "data": {**made["data"], **more}}]}


# Small batches reach the second commit, and the first expiry, soon.
OFTEN = {"FRAZIL_PIPELINE__MAX_BATCH_AGE_SECONDS": "0.05", "FRAZIL_PIPELINE__SNAPSHOT_BUDGET": "1"}


@pytest.fixture(scope="module")
def killed_rig() -> Iterator[Rig]:
    """One bus, one gateway and one set of tables for all kills of the pipeline: each finds what the one before left."""
    with new_rig() as found:
        found.product.gateway()
        for table in TABLES:
            found.product.declare(table, COLUMNS)
        yield found


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("point", OF_PIPELINE)
def test_a_kill_of_the_pipeline_at(killed_rig: Rig, point: str) -> None:
    product = killed_rig.product
    with killed_rig.producers() as producers:
        # The second time: the first has then left its traces in the memory of the process.
        pipeline = product.pipeline(FRAZIL_CRASH_AT=point if "expire" in point else f"{point}:2", **OFTEN)
        assert pipeline.wait(PATIENCE_SECONDS) == -signal.SIGKILL, product.said(pipeline)[-3000:]
    assert killed_rig.was_hit(point)
    assert producers.acked() and producers.statuses().keys() == {(202, "")}, "the pipeline is no concern of producers"
    so_far = killed_rig.verdict()
    assert not (so_far.duplicated or so_far.phantom or so_far.damaged), str(so_far)


@pytest.mark.slow
@pytest.mark.spark
def test_after_all_kills_of_the_pipeline_everything_is_there_once(killed_rig: Rig) -> None:
    """The last pipeline takes up what the kills above left, as each of them did for the one before."""
    with killed_rig.producers():
        killed_rig.product.until_ready(killed_rig.product.pipeline(**OFTEN))
    killed_rig.product.until_drained(*TABLES)
    found = killed_rig.verdict()
    assert found.is_clean, str(found)
    assert found.stored >= found.acked > 0


@pytest.mark.slow
@pytest.mark.spark
def test_a_kill_at_every_point_of_the_gateway(rig: Rig) -> None:
    product = rig.product
    gateway = product.gateway()
    for table in (*TABLES, "broken"):
        product.declare(table, COLUMNS)
    product.declare("growing", COLUMNS, unknown_fields="evolve")
    pipeline = product.pipeline()
    # Beside the producers, who lead to the other points: a request whose answer dies with the gateway.
    requests: dict[str, tuple[str, dict[str, Any], int]] = {
        "after_stream_create_before_table_create": ("/v1/tables", {"name": "late", "columns": COLUMNS}, 201),
        "after_alter_before_publish": ("/v1/tables/growing/events", one_event("g", more="a new column"), 202),
        "after_repair_stream_before_switch": (
            "/v1/tables/broken/repair",
            {"what": "bus", "accept_loss": True},
            200,
        ),
    }
    with rig.producers() as producers:
        eventually(lambda: producers.acked() > 10, what="events before the first kill")
        rig.delete_stream("broken")
        product.end(gateway)
        for point in OF_GATEWAY:
            gateway = product.gateway(wait=False, FRAZIL_CRASH_AT=point if point in requests else f"{point}:3")
            if point in requests:
                product.until_accepting()
                with suppress(httpx.HTTPError):
                    product.ask("POST", *requests[point][:2])
            assert gateway.wait(PATIENCE_SECONDS) == -signal.SIGKILL, f"{point}\n{product.said(gateway)[-3000:]}"
            assert rig.was_hit(point), point
        product.gateway()
        for path, body, status in requests.values():
            answer = product.ask("POST", path, body)
            assert answer.status_code == status, f"the same again after the kill: {path} {answer.text}"
        before = producers.acked()
        eventually(lambda: producers.acked() > before + 10, what="events after the last kill")
    for table in ("late", "broken"):
        assert product.ask("POST", f"/v1/tables/{table}/events", one_event(table)).status_code == 202
    assert pipeline.poll() is None, "the gateway's end is no concern of the pipeline"
    product.until_drained(*TABLES, "growing", "late", "broken")
    found = rig.verdict()
    assert found.is_clean, str(found)
    locate = in_sqlite(product.data / "catalog.db")
    stored = {table: [row.event_id for row in read_rows(locate, table)] for table in ("growing", "late", "broken")}
    assert stored == {"growing": ["g"], "late": ["late"], "broken": ["broken"]}


@pytest.mark.slow
@pytest.mark.spark
def test_a_committer_that_slept_through_the_work_of_another_writes_no_row_twice(rig: Rig) -> None:
    """It stops between stage and publish; another process commits the same range and more; then it wakes and goes on.

    From there on two pipelines commit the same tables at the same time.
    """
    product = rig.product
    product.gateway()
    for table in TABLES:
        product.declare(table, COLUMNS)
    with rig.producers() as producers:
        sleeper = product.pipeline(FRAZIL_PAUSE_AT="after_stage_before_publish")
        eventually(lambda: rig.was_hit("after_stage_before_publish"), what="a stage")
        eventually(lambda: _state(sleeper.pid) == "T", what="the sleep")
        said_before = len(product.said(sleeper))
        other = product.pipeline()
        eventually(lambda: rig.stored() > 0, what="a commit of the other", every=0.5)
        signal_to(sleeper.pid, signal.SIGCONT)

        def woke() -> bool:
            assert sleeper.poll() is None, product.said(sleeper)[-3000:]
            since = product.said(sleeper)[said_before:]
            return '"batch committed"' in since or "cycle failed" in since

        eventually(woke, what="the sleeper's next word")
        before = producers.acked()
        eventually(lambda: producers.acked() > before + 20, what="events while two commit")
    product.until_drained(*TABLES)
    assert other.poll() is None and sleeper.poll() is None
    found = rig.verdict()
    assert found.is_clean, str(found)
    assert found.stored > 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
