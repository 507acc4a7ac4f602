"""Lake: the tables of a catalog, and the changes that are allowed to them. `commit` and `bulk` write their rows."""

from __future__ import annotations

import logging
import random
import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from sqlalchemy import event, make_url, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from frazil.crash import crash_point
from frazil.errors import Conflict, DataLoss, FrazilError, Misconfigured, NotFound, Unavailable, table_not_found
from frazil.events import first_position
from frazil.events.declaration import DROPPED_NAMESPACE, TableSpec, parse_columns
from frazil.lake.catalog.schema import BASE_PROPERTIES, TABLE_PROPERTIES, evolve, iceberg_schema, partition_spec
from frazil.lake.catalog.table import DECLARATION, DROPPED_AT, HISTORY, IDENTITY, STREAM, WATERMARK, LakeTable
from frazil.registry import ChangeCounter, catalog_damaged, database_error
from frazil.storage import Warehouse

if TYPE_CHECKING:
    from frazil.registry import Registry

log = logging.getLogger(__name__)
_TRIES = 8
# PyIceberg's message for a snapshot whose number was taken by a stage, which does not move the main branch.
_STAGED_MEANWHILE = "older than last sequence number"
_SILENT_SECONDS = 20
# Names have no dash, so that it separates them.
_DROPPED = re.compile(r"(?P<namespace>[a-z0-9_]+)-(?P<name>[a-z0-9_]+)-(?P<at>\d+)\Z")


class Lake:
    """All tables of one catalog. Methods block; loaded tables are values and may be shared between threads."""

    def __init__(self, catalog: SqlCatalog, warehouse: Warehouse) -> None:
        self.catalog = catalog
        self.warehouse = warehouse
        self._loaded: dict[str, LakeTable] = {}

    @cached_property
    def registry(self) -> Registry:
        """Small documents that every process on this catalog shares."""
        from frazil.registry import Registry

        return Registry(self.catalog.engine, self.catalog.name)

    @cached_property
    def pulse(self) -> ChangeCounter:
        """A counter that changes with every commit to the catalog."""
        return ChangeCounter(self.catalog.engine)

    def locations(self) -> dict[str, str]:
        """Every table's metadata file, by full name, in one cheap query: a change of a table changes its entry."""
        every = self.every_location()
        return {name: location for name, location in every.items() if not name.startswith(f"{DROPPED_NAMESPACE}.")}

    def every_location(self) -> dict[str, str]:
        """The same with the dropped tables, under their hidden names."""
        query = text(
            "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = :catalog"
        )
        with translated("list the tables"), self.catalog.engine.connect() as connection:
            rows = connection.execute(query, {"catalog": self.catalog.name}).all()
        return {f"{namespace}.{name}": location for namespace, name, location in rows}

    def names(self) -> list[str]:
        return sorted(self.locations())

    def table(self, name: str, *, location: str | None = None) -> LakeTable:
        """The table as it is now, or as of `location` where the caller has just looked it up."""
        known = self._loaded.get(name)
        if location is not None and known is not None and known.metadata_location == location:
            return known
        with translated(f"load {name}"):
            try:
                loaded = LakeTable(name, self.catalog.load_table(name))
            except NoSuchTableError as error:
                self._loaded.pop(name, None)
                raise table_not_found(name) from error
        if DECLARATION not in loaded.properties:
            raise NotFound(f"{name} is an Iceberg table, but not one of frazil", code="foreign_table")
        self._loaded[name] = loaded
        return loaded

    def create(
        self, spec: TableSpec, *, stream: str, identity: str, first_sequence: int = 1, location: str | None = None
    ) -> LakeTable:
        """Make the table, fed from this stream, in a new folder or in one that files were drafted in. A name that is
        taken is a `Conflict`."""
        fed = {STREAM: stream, IDENTITY: identity, WATERMARK: str(first_position(first_sequence))}
        return self._create(spec, fed, location)

    def create_base(self, spec: TableSpec, history: LakeTable) -> LakeTable:
        """Make the table that holds the state of an entity: empty, and nothing of its history folded yet."""
        return self._create(spec, BASE_PROPERTIES | {HISTORY: history.uuid, WATERMARK: str(first_position(1))})

    def _create(self, spec: TableSpec, more: Mapping[str, str], location: str | None = None) -> LakeTable:
        schema = iceberg_schema(spec)
        properties = {**TABLE_PROPERTIES, DECLARATION: _declaration(spec), **more}
        with translated(f"create {spec.name}"):
            try:
                self._namespace(spec.namespace)
                created = self.catalog.create_table(
                    spec.name,
                    schema,
                    location=location or self.new_location(spec.name),
                    partition_spec=partition_spec(spec, schema),
                    properties=properties,
                )
            except TableAlreadyExistsError as error:
                raise Conflict(f"table {spec.short_name!r} exists already", code="table_exists") from error
        return LakeTable(spec.name, created)

    def create_bulk(self, spec: TableSpec, *, location: str | None = None) -> LakeTable:
        """Make a table that no stream feeds, or find it; columns that it lacks are added."""
        assert not spec.is_streamed
        try:
            return self.create(spec, stream="", identity=f"loads-{uuid.uuid4().hex}", location=location)
        except Conflict:
            return self.alter(spec.name, lambda existing: existing.with_columns(spec.columns))

    def new_location(self, name: str, mark: str | None = None) -> str:
        """A folder of the table's own: one that was dropped under the same name keeps its files apart."""
        folder = name.replace(".", "/")
        return f"{self.warehouse.url.rstrip('/')}/{folder}-{mark or uuid.uuid4().hex[:8]}"

    def alter(self, name: str, change: Callable[[TableSpec], TableSpec]) -> LakeTable:
        """Change a declaration: columns added or widened, other fields changed. All in one commit, or nothing.

        `change` is a function of the declaration as it is, because it is applied again when another one came first.
        """

        def apply(current: LakeTable) -> bool:
            old, new = current.spec, change(current.spec)
            if new == old:
                return False
            with current.iceberg.transaction() as transaction:
                evolve(transaction, old, new)
                transaction.set_properties({DECLARATION: _declaration(new)})
            return True

        return self.update_table(name, apply)

    def set_properties(self, name: str, properties: Mapping[str, str]) -> LakeTable:
        def apply(current: LakeTable) -> bool:
            with current.iceberg.transaction() as transaction:
                transaction.set_properties(dict(properties))
            return True

        return self.update_table(name, apply)

    def update_table(self, name: str, apply: Callable[[LakeTable], bool]) -> LakeTable:
        """Load the table, let `apply` change it in one transaction, and again from the start if another came first.

        `apply` says whether there was anything to change; it is given a table that nobody else has.
        """
        for attempt in range(_TRIES):
            try:
                with translated(f"change {name}"):
                    current = self.table(name)
                    # A transaction changes the object that it is opened on: nobody else may be given this one.
                    self._loaded.pop(name, None)
                    # And PyIceberg must not try again by itself: what `apply` decided holds for this state only.
                    current.iceberg.metadata.properties["commit.retry.num-retries"] = "0"
                    changed = apply(current)
                return self.table(name) if changed else current
            except (CommitFailedException, ValueError) as error:
                if isinstance(error, ValueError) and _STAGED_MEANWHILE not in str(error):
                    raise
                time.sleep(random.uniform(0.01, 0.05) * 2**attempt)  # noqa: S311 - only spreads the tries
        raise Unavailable(f"{name} is being changed by many at once", code="busy", hint="try again")

    def drop(self, name: str) -> None:
        """Take the table out of sight. Its rows, history and events on the bus stay; `undrop` brings it back.

        The table is marked first, so that its own files show that it is dropped if the catalog is ever lost. A mark
        without the rename means nothing: the table is where it was.
        """
        at = time.time_ns()
        try:
            self.set_properties(name, {DROPPED_AT: str(at)})
        except DataLoss:
            log.warning("table dropped without a mark, metadata unreadable: %s", name)
        crash_point("after_drop_mark_before_rename")
        with translated(f"drop {name}"):
            self._namespace(DROPPED_NAMESPACE)
            try:
                self.catalog.rename_table(name, hidden_name(name, at))
            except NoSuchTableError as error:
                raise table_not_found(name) from error
        self._loaded.pop(name, None)

    def dropped(self) -> dict[str, list[str]]:
        """What `undrop` can bring back: for each name its hidden names, the newest first."""
        with translated("list the dropped tables"):
            if not self.catalog.namespace_exists(DROPPED_NAMESPACE):
                return {}
            hidden = [name for _, name in self.catalog.list_tables(DROPPED_NAMESPACE)]
        found: dict[str, list[str]] = {}
        for match in sorted((m for h in hidden if (m := _DROPPED.match(h))), key=lambda m: -int(m["at"])):
            found.setdefault(f"{match['namespace']}.{match['name']}", []).append(match.group())
        return found

    def undrop(self, name: str, *, uuid: str | None = None) -> LakeTable:
        """Bring back the table of this name that was dropped last, or of them the one with this uuid."""
        for _ in range(_TRIES):
            hidden = self.dropped().get(name) or []
            if uuid is not None:
                hidden = [entry for entry in hidden if self._uuid_of_dropped(entry) == uuid]
            if not hidden:
                raise NotFound(f"no dropped table is named {name!r}", code="table_not_found", hint="frazil tables list")
            try:
                self._rename_back(f"{DROPPED_NAMESPACE}.{hidden[0]}", name)
            except NotFound:
                continue  # somebody else brought it back or purged it: see what there is now
            return self.table(name)
        raise Unavailable(f"{name} is being changed by many at once", code="busy", hint="try again")

    def _rename_back(self, hidden: str, name: str) -> None:
        with translated(f"undrop {name}"):
            try:
                if self.catalog.table_exists(name):
                    raise TableAlreadyExistsError(name)
                # The mark goes first: dying before the rename leaves a dropped table that the next undrop brings back.
                self._take_mark_away(hidden)
                crash_point("after_undrop_mark_before_rename")
                self.catalog.rename_table(hidden, name)
            except TableAlreadyExistsError as error:
                raise Conflict(
                    f"a table named {name!r} exists", code="table_exists", hint="drop that one first"
                ) from error

    def _take_mark_away(self, hidden: str) -> None:
        def apply(current: LakeTable) -> bool:
            if DROPPED_AT not in current.properties:
                return False
            try:
                with current.iceberg.transaction() as transaction:
                    transaction.remove_properties(DROPPED_AT)
            except KeyError as error:  # PyIceberg raises it for a property that another process has just removed
                raise CommitFailedException(f"the mark of {hidden} is gone") from error
            return True

        self.update_table(hidden, apply)
        self._loaded.pop(hidden, None)

    def register(self, name: str, metadata_location: str) -> bool:
        """Make this metadata file the table of this name; False if the name is taken."""
        with translated(f"register {name}"):
            self._namespace(name.partition(".")[0])
            try:
                self.catalog.register_table(name, metadata_location)
            except TableAlreadyExistsError:
                return False
        return True

    def _uuid_of_dropped(self, hidden: str) -> str:
        """Empty if it is none any more."""
        with translated(f"look at the dropped table {hidden}"):
            try:
                return str(self.catalog.load_table(f"{DROPPED_NAMESPACE}.{hidden}").metadata.table_uuid)
            except NoSuchTableError:
                return ""

    def _namespace(self, namespace: str) -> None:
        try:
            self.catalog.create_namespace_if_not_exists(namespace)
        except (NamespaceAlreadyExistsError, IntegrityError):
            return  # another process created it between the check and the creation

    def close(self) -> None:
        self.pulse.close()
        self.catalog.close()


def hidden_name(name: str, at: int) -> str:
    """The full name of a table that was dropped at this moment, in nanoseconds."""
    namespace, _, short = name.partition(".")
    return f"{DROPPED_NAMESPACE}.{namespace}-{short}-{at}"


def open_lake(url: str, warehouse: Warehouse, *, name: str = "frazil", user: str = "", password: str = "") -> Lake:
    """Open the SQL catalog at `url` (`sqlite:///…` or `postgresql://…`), and make it where there is none."""
    if url.startswith("sqlite:///"):
        _prepare_sqlite(Path(url.removeprefix("sqlite:///")))
        url += "?timeout=30"
    elif url.partition("://")[0] in ("postgresql", "postgres"):
        address = make_url(url).set(drivername="postgresql+pg8000", username=user or None, password=password or None)
        url = address.render_as_string(hide_password=False)
    else:
        raise Misconfigured(
            "the scheme of catalog.url is not supported", hint="set catalog.url to sqlite:///… or postgresql://…"
        )
    if not warehouse.is_s3:
        warehouse.folder().mkdir(parents=True, exist_ok=True)
    properties = warehouse.for_pyiceberg()
    if not warehouse.is_s3:
        properties["py-io-impl"] = "frazil.lake.catalog.fsync_io.FsyncFileIO"
    with translated("open the catalog"):
        catalog = SqlCatalog(name, uri=url, pool_pre_ping="true", **properties)
    if catalog.engine.dialect.driver == "pg8000":
        event.listen(catalog.engine, "do_connect", _bounded)
        catalog.engine.dispose()
    return Lake(catalog, warehouse)


def _bounded(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
    """A silent database must not block a thread for ever; every query of the catalog is small."""
    options["timeout"] = _SILENT_SECONDS


def same_declaration(existing: TableSpec, wanted: TableSpec) -> bool:
    """Whether declaring `wanted` again changes nothing. Columns that evolved since do not count as a difference."""
    if existing.unknown_fields == "evolve":
        evolved = {name: existing.columns.get(name, column) for name, column in wanted.columns.items()}
        if all(wanted.columns[name].type.widens_to(column.type) for name, column in evolved.items()):
            return replace(existing, columns={}) == replace(wanted, columns={}) and set(evolved) <= set(
                existing.columns
            )
        return False
    return existing == wanted


def changed_by(request: Mapping[str, Any]) -> Callable[[TableSpec], TableSpec]:
    """The change of an alter request: `add_columns`, `widen`, and other fields of the declaration."""
    columns = parse_columns({**(request.get("add_columns") or {}), **(request.get("widen") or {})})
    added = set(request.get("add_columns") or {})

    def change(spec: TableSpec) -> TableSpec:
        for name in set(columns) - added:
            if name not in spec.columns:
                raise NotFound(f"column {name!r} does not exist", code="column_not_found", hint="use add_columns")
        for name in added & set(spec.columns):
            if spec.columns[name] != columns[name]:
                raise Conflict(f"column {name!r} exists already", code="column_exists", hint="use widen")
        changed = {
            name: replace(spec.columns[name], type=column.type) if name in spec.columns else column
            for name, column in columns.items()
        }
        plain = ("description", "owner", "freshness_target_seconds", "retention_years")
        fields = {name: request[name] for name in plain if name in request}
        if "tags" in request:
            fields["tags"] = tuple(request["tags"])
        return replace(spec.with_columns(changed), **fields)

    return change


def _declaration(spec: TableSpec) -> str:
    return msgspec.json.encode(spec.declared()).decode()


def _prepare_sqlite(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with sqlite3.connect(path, timeout=30) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
        path.chmod(0o600)
    except sqlite3.DatabaseError as error:
        raise catalog_damaged(f"{path}: {error}") from error


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Translates the errors of the catalog's database and of the object store."""
    try:
        yield
    except (FrazilError, CommitFailedException):
        raise
    except NoSuchTableError as error:
        # It existed a moment ago: a name that is unknown was refused before.
        raise NotFound(
            f"cannot {doing}: the table was just dropped", code="table_not_found", hint="look at the tables again"
        ) from error
    except TableAlreadyExistsError as error:
        raise Conflict(f"cannot {doing}: the name was just taken", code="table_exists") from error
    except FileNotFoundError as error:
        raise DataLoss(
            f"cannot {doing}: a metadata file is missing",
            code="metadata_missing",
            hint="restore the warehouse from its backup; `frazil doctor` names the file",
            details={"file": str(error.filename or error)},
        ) from error
    except ValidationError as error:
        raise DataLoss(
            f"cannot {doing}: a metadata file is damaged",
            code="metadata_damaged",
            hint="restore the warehouse from its backup; `frazil doctor` names the file",
        ) from error
    except (SQLAlchemyError, CommitStateUnknownException, OSError) as error:
        raise database_error(doing, error) from error


__all__ = ["Lake", "changed_by", "open_lake", "same_declaration"]
