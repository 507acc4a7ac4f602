"""A client whose tables are a log in a file, and whose SQL is judged by the statement wall and run by DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from frazil.client import Answer, PublishReceipt
from frazil.errors import Conflict, NotFound
from frazil.events import Token
from frazil.events.declaration import parse_table
from frazil.serving.sql.statement.judge import judge_statement
from tests.vault.log_tables import LogTables


class DuckClient:
    """What `ClientTables` and the commands use of a client. Tables are called `notes` and `note_links`."""

    def __init__(self, folder: Path) -> None:
        self.log = LogTables(folder)
        self.declared: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []

    def __enter__(self) -> DuckClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def table(self, name: str) -> dict[str, Any]:
        if name.removeprefix("main.") not in self.declared:
            raise NotFound(f"no table {name}")
        return self.declared[name.removeprefix("main.")]

    def create_table(self, name: str, columns: Mapping[str, Any], **words: Any) -> dict[str, Any]:
        short = name.removeprefix("main.")
        if short in self.declared:
            raise Conflict(f"{name} is there")
        parse_table({"name": name, "columns": dict(columns)})
        self.declared[short] = {"name": short, "columns": dict(columns), **words}
        self.log.columns["notes" if short == "notes" else "links"] = dict(columns)
        return self.declared[short]

    def alter_table(self, name: str, *, add_columns: Mapping[str, str]) -> None:
        self.table(name)["columns"] |= add_columns
        self.log.columns["notes"] = dict(self.table(name)["columns"])

    def publish(self, table: str, events: Sequence[Mapping[str, Any]]) -> PublishReceipt:
        self.log.publish(_which(table), events)  # type: ignore[arg-type]
        return PublishReceipt(
            table, len(events), 0, str(Token.of(table, "stream", len(self.log.events(_which(table)))))
        )

    def visibility(self, token: str, wait_s: float = 0.0) -> dict[str, Any]:
        return {"visible": True}

    def sql(self, text: str, parameters: Sequence[Any] = (), *, max_rows: int = 10_000, **words: Any) -> Answer:
        self.asked.append(text)
        with duckdb.connect() as connection:
            for name in self.declared:
                which = _which(name)
                connection.register(name, self._arrow(which))
                connection.register(f"{name}__history", self._history(which))
            rows = connection.execute(judge_statement(connection, text).sql, list(parameters)).to_arrow_table()
        cut = rows.slice(0, max_rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, cut.schema) as writer:
            writer.write_table(cut)
        facts = {"truncated": cut.num_rows < rows.num_rows, "row_count": cut.num_rows}
        return Answer.of(facts, sink.getvalue().to_pybytes())

    def _arrow(self, which: str) -> pa.Table:
        schema = parse_table({"name": "t", "columns": self.log.columns[which]}).row_schema()
        fields = [field for field in schema if not field.name.startswith("_")]
        found = []
        for vault in sorted({event["data"]["vault"] for event in self.log.events(which)}):
            ids = self.log.versions(which, vault)  # type: ignore[arg-type]
            keys = ("vault", "path") if which == "notes" else ("vault", "path", "position")
            rows = self.log.rows(which, vault)
            found += [{**row, "_id": ids[tuple(row[key] for key in keys)]} for row in rows]
        return pa.Table.from_pylist(found, schema=pa.schema([*fields, pa.field("_id", pa.string())]))

    def _history(self, which: str) -> pa.Table:
        keys = {"vault": pa.string(), "path": pa.string(), "position": pa.int32()}
        rows = [
            {**{key: event["data"].get(key) for key in keys}, "_id": event["id"], "_op": event["op"], "_seq": at}
            for at, event in enumerate(self.log.events(which))
        ]
        schema = pa.schema([*keys.items(), ("_id", pa.string()), ("_op", pa.string()), ("_seq", pa.int64())])
        return pa.Table.from_pylist(rows, schema=schema)


def _which(table: str) -> str:
    return "notes" if table.removeprefix("main.") == "notes" else "links"
