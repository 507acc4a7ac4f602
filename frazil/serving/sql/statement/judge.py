"""Judgement of a statement (the third wall): one SELECT, all the way down, of tables that are then looked up by name.

The engine's own parser reads the text (`json_serialize_sql`, which binds and runs nothing), and the tree is judged by
three lists of what is allowed: the nodes of `tree.py`, the functions of `functions.py` and plain table names. Whatever
is on none of them is refused. The names that come out are the only ones the gateway makes readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import msgspec

from frazil.serving.sql.query import Statement
from frazil.serving.sql.refusals import BadSql, FunctionNotAllowed, SqlRefused
from frazil.serving.sql.statement.functions import (
    AGGREGATES,
    CATALOG_TYPES,
    FUNCTIONS,
    SCALARS,
    TABLE_FUNCTIONS,
    is_engine_view,
)
from frazil.serving.sql.statement.syntax_tree import Node, nodes, too_deep
from frazil.serving.sql.statement.table_refs import TableRefs, lower
from frazil.serving.sql.statement.time_travel import with_at_clauses

__all__ = ["Statement", "judge_filter", "judge_statement"]

MAX_TEXT_BYTES = 100_000

_WORD = re.compile(rb"[A-Za-z_]+")
# An out-of-place reference to a CTE is looked up as a table; with a name like these that is never a file or an address.
_CTE_NAME = re.compile(r"[\w $-]+")
_OPERATORS = frozenset(
    """
    ARRAY_CONSTRUCTOR ARRAY_EXTRACT ARRAY_SLICE COMPARE_IN COMPARE_NOT_IN GROUPING_FUNCTION OPERATOR_COALESCE
    OPERATOR_IS_NOT_NULL OPERATOR_IS_NULL OPERATOR_NOT OPERATOR_NULLIF OPERATOR_TRY OPERATOR_UNPACK STRUCT_EXTRACT
    """.split()
)
_HINTS = {
    "SHOW": "`frazil tables list` or GET /v1/tables lists the tables",
    "PIVOT": "write FROM t PIVOT (sum(x) FOR c IN ('a', 'b')), or sum(x) FILTER (WHERE c = 'a') per value",
    "EXPLAIN": "run the query itself; the answer has the time that it took",
}
_NOT_IN_A_FILTER = {
    "expression:SUBQUERY": "a subquery",
    "expression:WINDOW": "a window function",
    "expression:STAR": "*",
    "expression:PARAMETER": "a parameter",
    "expression:POSITIONAL_REFERENCE": "a column by its number",
}


def judge_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    """The statement to run and the tables it reads; `BadSql`, `SqlRefused` or `FunctionNotAllowed` if it may not run.

    Nothing is bound or executed. Its `sql` is one SELECT without a semicolon, which may be put in parentheses. The
    engine resolves names as it finds them, so whoever runs the statement must have made a view for each table that is
    certain, or refuse; an uncertain one may be left out.
    """
    _check_text(sql)
    text = with_at_clauses(sql)
    statement = _parsed(connection, text)
    seen = list(nodes(statement))
    for kind, node in seen:
        _check(kind, node)
    tables = TableRefs(seen)
    runs = _written(connection, statement) if tables.moved else _bare(connection, text, statement)
    return Statement(runs, tables.found())


def judge_filter(connection: duckdb.DuckDBPyConnection, expression: str) -> None:
    """Refuse what is not one expression over the columns of one row.

    It must parse to the same tree inside and outside of parentheses, so that it means the same wherever it is put.
    Whether the columns exist and the result is a boolean, the binder decides later.
    """
    _check_text(expression)
    bare = _parsed(connection, f"SELECT\n{expression}\n")
    inside = _parsed(connection, f"SELECT 1 WHERE (\n{expression}\n)")
    for kind, node in nodes(inside):
        _check(kind, node)
        _check_scalar(kind, node)
    written = inside["node"]["where_clause"]
    # Each must be the plain statement with nothing but the expression in its place.
    plain = _parsed(connection, "SELECT 1")
    one = plain["node"]["select_list"]
    as_column = plain | {"node": plain["node"] | {"select_list": [written]}}
    as_filter = plain | {"node": plain["node"] | {"select_list": one, "where_clause": written}}
    if _canonical(bare) != _canonical(as_column) or _canonical(inside) != _canonical(as_filter):
        raise SqlRefused("a row filter is one expression", hint="for example: team = 'north' AND level < 3")


def _check_text(sql: str) -> None:
    # The parser stops at a NUL: what is behind it would be judged by nobody.
    if "\0" in sql:
        raise BadSql("the text contains a NUL character")
    try:
        size = len(sql.encode())
    except UnicodeEncodeError as error:
        raise BadSql("the text is not valid Unicode") from error
    if size > MAX_TEXT_BYTES:
        raise SqlRefused(
            f"the statement is {size:,} bytes long, more than {MAX_TEXT_BYTES:,}",
            hint="pass long lists as parameters: … WHERE id IN (SELECT unnest($1))",
        )


def _parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """The tree of the one SELECT in this text."""
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert row is not None
    try:
        answer = msgspec.json.decode(row[0])
    except RecursionError as error:
        raise too_deep() from error
    except msgspec.DecodeError as error:
        # The engine writes a number beyond the doubles, 1e999, as something that is not JSON.
        raise BadSql("a number in the statement is out of range") from error
    if answer["error"]:
        raise _not_parsed(answer, sql)
    statements: list[Node] = answer["statements"]
    if len(statements) != 1:
        raise SqlRefused(
            "the text holds no statement" if not statements else f"the text holds {len(statements)} statements",
            hint="send one SELECT at a time",
        )
    return statements[0]


def _not_parsed(answer: Node, sql: str) -> BadSql | SqlRefused:
    message = " ".join(str(answer["error_message"]).split())
    if answer["error_type"] == "parser":
        if message.startswith(("memory exhausted", "Max expression depth")):
            return too_deep()
        if message.startswith(("A CTE needs a SELECT", "SELECT INTO")):
            return SqlRefused("only SELECT is run here, all the way down", hint="nothing can be changed by SQL")
        position = answer.get("position")
        where = {"position": int(position)} if position is not None else None
        return BadSql(message[:500], hint="the SQL dialect is DuckDB's", details=where)
    words = list(_words(sql))
    word = next((word for word in words if word in _HINTS), words[0] if words else "")
    harmless = word in ("", "SELECT", "WITH", "FROM", "VALUES", "TABLE")
    what = "only SELECT is run here" + ("" if harmless else f", not {word}")
    return SqlRefused(what, hint=_HINTS.get(word, "nothing can be changed by SQL; events are published, not inserted"))


def _words(sql: str) -> Iterator[str]:
    text = sql.encode()
    for start, kind in duckdb.tokenize(sql):
        word = _WORD.match(text, start)
        if kind == duckdb.token_type.keyword and word:
            yield word.group().decode().upper()


def _check(kind: str, node: Node) -> None:
    """Whether a node of a known kind is allowed to stand there."""
    if kind in ("expression:FUNCTION", "expression:WINDOW"):
        _check_call(node)
    elif kind == "expression:OPERATOR" and node["type"] not in _OPERATORS:
        raise SqlRefused(f"the operator {node['type'].lower()} is not run here")
    elif kind == "table:TABLE_FUNCTION":
        function = node["function"]
        if function.get("class") != "FUNCTION" or lower(function["function_name"]) not in TABLE_FUNCTIONS:
            raise _no_function(str(function.get("function_name", "?")))
    elif kind == "table:BASE_TABLE" and node["catalog_name"]:
        raise SqlRefused(
            f"a table name of three parts, beginning with {node['catalog_name'][:60]!r}",
            hint="write the table as `name` or `namespace.name`",
        )
    elif kind == "table:SHOW_REF" and (node["show_type"] not in ("DESCRIBE", "SUMMARY") or node["query"] is None):
        raise SqlRefused("SHOW is not run here", hint=_HINTS["SHOW"])
    elif kind == "pivot" and node["pivot_enum"]:
        raise SqlRefused("PIVOT over an enum type is not run here", hint=_HINTS["PIVOT"])
    elif kind == "type_info:UNBOUND_TYPE_INFO":
        if node["catalog"] or node["schema"] or lower(node["name"]) not in CATALOG_TYPES:
            raise _no_type(node["name"])
    elif kind.startswith("type_info:") and node["alias"]:
        raise _no_type(node["alias"])
    elif kind == "cte":
        _check_cte(node["key"])
    elif kind == "query:RECURSIVE_CTE_NODE":
        _check_cte(node["cte_name"])


def _check_call(node: Node) -> None:
    # By its name alone, whatever it is qualified with: `a.lower()` has a column where a schema would stand.
    # A table function is called in FROM only, where it is checked again.
    name = lower(node["function_name"])
    if name not in FUNCTIONS and name not in TABLE_FUNCTIONS:
        raise _no_function(node["function_name"])
    if node.get("export_state"):
        raise SqlRefused("EXPORT_STATE is not run here")


def _no_function(name: str) -> FunctionNotAllowed:
    return FunctionNotAllowed(
        f"the function {name[:60]!r} is not available", hint="functions that only compute from their arguments are"
    )


def _no_type(name: str) -> SqlRefused:
    return SqlRefused(f"no such type here: {name[:60]!r}", hint="use DuckDB's types by their plain names")


def _check_cte(name: str) -> None:
    if is_engine_view(lower(name)) or not _CTE_NAME.fullmatch(name):
        raise SqlRefused(f"a WITH query cannot be called {name[:60]!r}", hint="give it a plain name")


def _check_scalar(kind: str, node: Node) -> None:
    what = _NOT_IN_A_FILTER.get(kind)
    name = lower(node["function_name"]) if kind == "expression:FUNCTION" else ""
    if name and (name in AGGREGATES or name not in SCALARS or name == "unnest"):
        what = f"the function {name!r}"
    if what:
        raise SqlRefused(f"a row filter cannot contain {what}", hint="it sees the columns of one row, and nothing else")


def _bare(connection: duckdb.DuckDBPyConnection, sql: str, statement: Node) -> str:
    """The text without its semicolon; a comment at the end is closed by a line end."""
    text = sql.encode()
    starts = [start for start, _ in duckdb.tokenize(sql)]
    while starts and text[starts[-1] : starts[-1] + 1] == b";":
        text = text[: starts.pop()]
    bare = text.decode()
    # The tokenizer takes a no-break space for a letter, and so may see a semicolon where the parser sees a string.
    if bare != sql and not _says(connection, bare, statement):
        return _written(connection, statement)
    return bare + "\n" if "--" in bare else bare


def _written(connection: duckdb.DuckDBPyConnection, statement: Node) -> str:
    """The tree as text again, which must parse to that very tree: what was judged is what runs."""
    document = msgspec.json.encode({"error": False, "statements": [statement]}).decode()
    row = connection.execute("SELECT json_deserialize_sql(?::JSON)", [document]).fetchone()
    if row is None or not _says(connection, row[0], statement):
        raise SqlRefused(
            "the statement cannot be written down again as it was understood",
            hint="name a snapshot or a time beside the statement instead of in it",
        )
    return str(row[0]).rstrip(";")


def _says(connection: duckdb.DuckDBPyConnection, sql: str, statement: Node) -> bool:
    try:
        return _canonical(_parsed(connection, sql)) == _canonical(statement)
    except (BadSql, SqlRefused):
        return False


def _canonical(tree: Node) -> bytes:
    """The tree without its offsets into the text: equal for two texts with the same meaning."""
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if "query_location" in part:
                part["query_location"] = 0
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return msgspec.json.encode(tree, order="sorted")
