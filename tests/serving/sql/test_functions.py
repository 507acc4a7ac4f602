"""The list of functions against the pinned engine: all of it exists, and what is left out is so for a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

from frazil.serving.sql.statement import functions

# Why a function of the engine is not on the list.
LEFT_OUT = {
    "tells of the engine, its settings or its catalog": r"""
        version current_(setting|database|schema|schemas|catalog|query|query_id|connection_id|transaction_id|role|user)
        session_user user getvariable in_search_path txid_current get_block_size stats vector_type
        pg_(?!typeof|size_pretty).*
        has_.*_privilege inet_.* (col|obj|shobj)_description format_type format_pg_type map_to_pg_oid""",
    "changes something that stays": "setseed nextval currval write_log",
    "evaluates text or types": r"""
        json_(de)?serialize_(sql|plan) make_type get_type replace_type cast_to_type can_cast_implicitly
        parse_duckdb_log_message""",
    "waits, or fails on demand": "sleep_ms error",
    "a piece of the engine's own plans": r"""
        __internal_.* combine finalize constant_or_null create_sort_key icu_sort_key
        icu_collate_.* remap_struct switch unpivot_list timetz_byte_comparable variant_.*""",
    "of types that no table has": "st_.*",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def names(engine: duckdb.DuckDBPyConnection, *kinds: str) -> set[str]:
    rows = engine.execute(
        "SELECT lower(function_name) FROM duckdb_functions() WHERE function_type IN $k", {"k": list(kinds)}
    )
    return {name for (name,) in rows.fetchall()}


def test_each_exists(engine: duckdb.DuckDBPyConnection) -> None:
    assert functions.FUNCTIONS - names(engine, "scalar", "aggregate", "macro") == {"unnest"}
    assert functions.TABLE_FUNCTIONS - names(engine, "table") == set()
    assert functions.AGGREGATES.isdisjoint(functions.SCALARS)


def test_all_others_are_left_out_for_a_reason(engine: duckdb.DuckDBPyConnection) -> None:
    left_out = names(engine, "scalar", "aggregate", "macro") - functions.FUNCTIONS
    reasons = {name: [why for why, words in LEFT_OUT.items() if _matches(words, name)] for name in left_out}
    assert [name for name, why in reasons.items() if len(why) != 1] == []
    allowed = {name for name in functions.FUNCTIONS if any(_matches(words, name) for words in LEFT_OUT.values())}
    assert allowed == set()


def _matches(words: str, name: str) -> bool:
    return any(re.fullmatch(word, name) for word in words.split())


def test_every_aggregate_may_be_named_in_a_text(engine: duckdb.DuckDBPyConnection) -> None:
    """`list_aggregate(l, 'name')` looks its second argument up among the aggregates: all of them are harmless."""
    assert names(engine, "aggregate") <= functions.AGGREGATES | functions.WINDOWS
    with pytest.raises(duckdb.Error):
        engine.execute("SELECT list_aggregate(['threads'], 'current_setting')")


def test_the_engines_own_views_are_known_by_their_names(engine: duckdb.DuckDBPyConnection) -> None:
    """Every name that resolves in an empty engine, be it a view, a table or a function without its parentheses."""
    rows = engine.execute(
        "SELECT view_name FROM duckdb_views() UNION SELECT table_name FROM duckdb_tables()"
    ).fetchall()
    candidates = {name for (name,) in rows} | names(engine, "table", "table_macro", "scalar", "macro", "pragma")
    resolved = set()
    for name in candidates:
        try:
            engine.execute(f'SELECT * FROM "{name}" LIMIT 0')
        except duckdb.Error:
            continue
        resolved.add(name)
    assert len(resolved) > 30
    assert {name for name in resolved if not functions.is_engine_view(name)} == set()


def test_types_left_to_the_catalog_are_the_known_ones(engine: duckdb.DuckDBPyConnection) -> None:
    rows = engine.execute("SELECT DISTINCT lower(type_name) FROM duckdb_types()").fetchall()
    unresolved = set()
    for (name,) in rows:
        tree = engine.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT NULL::{name}"]).fetchone()
        if tree is not None and '"UNBOUND"' in tree[0]:
            unresolved.add(name)
    assert unresolved - {"list", "struct", "map", "union", "array", "row"} == functions.CATALOG_TYPES


def test_what_a_bare_name_tells_is_known(engine: duckdb.DuckDBPyConnection) -> None:
    """A column that does not exist may be a value of the SQL standard, which no list of functions sees."""
    candidates = names(engine, "scalar", "macro", "aggregate") | {"localtime", "localtimestamp", "system_user"}
    told = {}
    for name in candidates | {"current_time", "current_timestamp", "current_path"}:
        try:
            told[name] = str(engine.execute(f'SELECT "{name}"').fetchall()[0][0])
        except duckdb.Error:
            continue
    constants = {name: value for name, value in told.items() if "time" not in name and name != "current_date"}
    assert set(constants) == {
        "current_catalog",
        "current_role",
        "current_schema",
        "current_user",
        "session_user",
        "user",
    }
    assert set(constants.values()) == {"memory", "main", "duckdb"}
