"""Source settings of a Postgres: its timeouts and policies, and its DSN from the environment or a private file."""

from __future__ import annotations

import os
from collections.abc import Mapping

from frazil.errors import Misconfigured
from frazil.pipeline.settings import SourceSettings
from frazil.pipeline.sources.postgres.connection import Timeouts
from frazil.pipeline.sources.postgres.dsn import Dsn, parse_dsn
from frazil.pipeline.sources.postgres.exported_snapshot import ExportedSnapshot
from frazil.pipeline.sources.postgres.read import RangeRead, TablePlan
from frazil.pipeline.sources.postgres.table_ranges import Range
from frazil.pipeline.sources.postgres.type_mapping import LossPolicy
from frazil.storage import read_private


def timeouts_of(settings: SourceSettings) -> Timeouts:
    return Timeouts(settings.connect_timeout_seconds, settings.lock_timeout_seconds, settings.statement_timeout_seconds)


def loss_policy_of(settings: SourceSettings) -> LossPolicy:
    return LossPolicy(settings.nan, settings.infinity, settings.nested_arrays)


def range_read(
    settings: SourceSettings, dsn: Dsn, snapshot: ExportedSnapshot, plan: TablePlan, within: Range
) -> RangeRead:
    """A range for a task, read as the source's settings say."""
    return RangeRead(
        dsn,
        snapshot.snapshot_id,
        plan,
        within,
        timeouts=timeouts_of(settings),
        batch_bytes=int(settings.batch_bytes),
        max_rows=settings.fetch_rows,
    )


def read_dsn(name: str, settings: SourceSettings, environment: Mapping[str, str] | None = None) -> Dsn:
    """The DSN of the source `name`. Raises with the setting to write if there is none."""
    dsn = _dsn(name, settings, environment)
    return dsn if settings.ca_file is None else dsn.trusting(str(settings.ca_file.expanduser().absolute()))


def _dsn(name: str, settings: SourceSettings, environment: Mapping[str, str] | None) -> Dsn:
    environment = os.environ if environment is None else environment
    if settings.dsn_file is not None:
        path = settings.dsn_file.expanduser()
        return parse_dsn(read_private(path, f"dsn_file of the source {name!r}"), str(path))
    if settings.dsn_env is None:
        raise Misconfigured(
            f"the source {name!r} does not say where its DSN is",
            code="dsn_missing",
            hint=f'write dsn_env = "A_VARIABLE" or dsn_file = "a/path" below [sources.{name}]',
        )
    if not environment.get(settings.dsn_env):
        raise Misconfigured(
            f"the environment variable {settings.dsn_env} (dsn_env of the source {name!r}) is not set",
            code="dsn_missing",
            hint=f"set {settings.dsn_env}=postgresql://user:password@host:5432/database",
        )
    return parse_dsn(environment[settings.dsn_env], settings.dsn_env)
