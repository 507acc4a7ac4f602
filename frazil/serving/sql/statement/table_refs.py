"""Table references: the tables that a statement names, in lower case, and the views it reads them under.

A name that a CTE of the statement has too is not certain: it may be no table at all. No view has a name with an @ in it
unless it was given one here, for a table as it was (`notes@7`) or for a namespace whose name the engine keeps for
itself (`@system`): table names cannot contain it.
"""

from __future__ import annotations

from frazil.serving.sql.query import TableRef
from frazil.serving.sql.refusals import SqlRefused
from frazil.serving.sql.statement.syntax_tree import Node
from frazil.serving.sql.statement.time_travel import at_of

MAX_TABLES = 64
# Schemas that mean something to the engine, or that it would take for one of its databases.
_ENGINE_SCHEMAS = frozenset(["system", "temp", "memory", "pg_catalog", "information_schema"])


class TableRefs:
    """The tables of a statement. Those that the engine must find under another name are renamed in the tree."""

    def __init__(self, seen: list[tuple[str, Node]]) -> None:
        self._ctes = {lower(node["key"]) for kind, node in seen if kind == "cte"}
        self._found: dict[TableRef, None] = {}
        self.moved: set[tuple[str, str]] = set()
        for kind, node in seen:
            if kind == "table:BASE_TABLE":
                self._add(node)
        for kind, node in seen:
            if kind == "expression:COLUMN_REF" and self.moved:
                self._follow(node)

    def found(self) -> tuple[TableRef, ...]:
        return tuple(self._found)

    def _add(self, node: Node) -> None:
        name, schema = lower(node["table_name"]), lower(node["schema_name"])
        version, as_of = at_of(node["at_clause"]) if node["at_clause"] else (None, None)
        # `recurring.r` is the engine's name for all rows so far of the recursive CTE r.
        certain = bool(node["at_clause"]) or name not in self._ctes or schema not in ("", "recurring")
        view, where = name, schema or "main"
        if version is not None:
            view = f"{name}@{version}"
        elif as_of is not None:
            view = f"{name}@{as_of.isoformat()}"
        if where in _ENGINE_SCHEMAS:
            where = f"@{where}"
        table = TableRef(schema or "main", name, (where, view), version, as_of, certain)
        self._found[table] = None
        if len(self._found) > MAX_TABLES:
            raise SqlRefused(f"the statement reads more than {MAX_TABLES} tables", hint="split it")
        if (where, view) != (schema or "main", name):
            self.moved.add((schema, name))
            node["alias"] = node["alias"] or node["table_name"]
            node["schema_name"], node["table_name"], node["at_clause"] = where, view, None

    def _follow(self, node: Node) -> None:
        """`system.audit.rows` reads `audit.rows` once the table has only its alias left."""
        names = node["column_names"]
        if len(names) > 2 and (lower(names[0]), lower(names[1])) in self.moved:
            node["column_names"] = names[1:]


def lower(name: str) -> str:
    """As the engine does it: a–z only, other letters keep their case."""
    return name.encode().lower().decode()
