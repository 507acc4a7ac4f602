"""One half of `bench entity`: the fold of many changes, against one MERGE by plain Spark of the same rows.

The control merges into a copy of the state, with the same write properties, from a Parquet file that has one row a key
already. It neither orders events by time nor resolves patches, and nothing of it is audited, synced or published.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from benchmarks import entity_load
from benchmarks.report import say
from benchmarks.workbench import Workbench
from frazil.bus import Stream
from frazil.bus.memory import MemoryBus
from frazil.errors import FrazilError
from frazil.lake.catalog import Entity, create_entity, load_entity
from frazil.pipeline.commit import BatchLimits, Committer, SparkCommitTarget
from frazil.pipeline.entities import FoldCommitter

NAME = "main.folded"
_WINDOW_SECONDS = 86_400.0


async def folds_and_merges(
    bench: Workbench, folder: Path, *, rows: int, changes: int, rounds: int
) -> tuple[list[float], list[float]]:
    """The seconds of each fold and of each merge; a warm-up is left out."""
    stream = await MemoryBus().create("folded")
    create_entity(bench.lake, entity_load.spec(NAME), stream=stream.name, identity=stream.identity)
    committer = Committer(
        SparkCommitTarget(bench.lake, f"{NAME}__history", bench.session),
        stream,
        window_seconds=_WINDOW_SECONDS,
        limits=BatchLimits(max_age_seconds=0.0),
    )
    folding = FoldCommitter(bench.lake, NAME, bench.session)
    await _commit(stream, committer, bench, range(rows))
    while await asyncio.to_thread(folding.fold):
        continue
    say(f"{rows:,} records are folded")
    folds, merges = [], []
    for number in range(rounds + 1):
        await _commit(stream, committer, bench, entity_load.keys_to_change(rows, changes, number))
        merge = await asyncio.to_thread(_merge, bench, folder / f"changes-{number}", changes)
        fold = await asyncio.to_thread(_fold, folding, changes)
        name = "warm-up" if number == 0 else f"round {number} of {rounds}"
        say(f"{name}: fold {fold:.2f} s, one merge {merge:.2f} s")
        if number:
            folds.append(fold)
            merges.append(merge)
    return folds, merges


async def _commit(stream: Stream, committer: Committer, bench: Workbench, keys: Sequence[int]) -> None:
    history = bench.lake.table(f"{NAME}__history").spec
    for message in await asyncio.to_thread(entity_load.messages, history, uuid.uuid4().hex[:12], keys):
        await stream.publish([message], message_id=uuid.uuid4().hex)
    while await committer.cycle(idle_seconds=0.0, draining=True):
        continue


def _fold(folding: FoldCommitter, changes: int) -> float:
    began = time.perf_counter()
    done = folding.fold()
    seconds = time.perf_counter() - began
    if done is None or done.rows != changes or done.keys != changes:
        raise FrazilError(f"{changes} changes were to be folded; it tells {done}")
    return seconds


def _merge(bench: Workbench, changed: Path, changes: int) -> float:
    entity = load_entity(bench.lake, NAME)
    catalog, copy = bench.lake.catalog.name, f"{bench.lake.catalog.name}.main.copied"
    columns = ", ".join(entity.base.spec.row_schema().names)
    rows = f"SELECT {columns} FROM {catalog}.{NAME}__history WHERE _seq >= {entity.base.watermark}"  # noqa: S608
    bench.session.sql(rows).write.parquet(str(changed))
    bench.session.sql(
        f"CREATE TABLE {copy} USING iceberg TBLPROPERTIES ({_written_like(entity)}) "  # noqa: S608
        f"AS SELECT * FROM {catalog}.{NAME}"
    )
    new = f"SELECT s.id FROM parquet.`{changed}` AS s LEFT ANTI JOIN {copy} AS t ON s.id = t.id"  # noqa: S608
    expected = bench.session.table(copy).count() + bench.session.sql(new).count()
    began = time.perf_counter()
    bench.session.sql(
        f"MERGE INTO {copy} AS t USING parquet.`{changed}` AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    seconds = time.perf_counter() - began
    if (found := bench.session.table(copy).count()) != expected:
        raise FrazilError(f"the merge of {changes} rows left {found} rows, not {expected}")
    bench.session.sql(f"DROP TABLE {copy} PURGE")
    return seconds


def _written_like(entity: Entity) -> str:
    """The properties that decide how a merge writes."""
    kept = {name: value for name, value in entity.base.iceberg.properties.items() if name.startswith("write.")}
    kept.pop("write.wap.enabled", None)
    return ", ".join(f"'{name}' = '{value}'" for name, value in {**kept, "format-version": "2"}.items())
