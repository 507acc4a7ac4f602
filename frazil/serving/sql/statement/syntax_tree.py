"""Syntax tree of a parsed SELECT, as the engine writes it down: every kind of node, and every key of each.

The walk goes by this table and by nothing else. A kind that is not in it, a key too many or too few, or a value of
another sort is refused: should another DuckDB parse something new, then it is refused until somebody has written here
where its parts are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from frazil.serving.sql.refusals import SqlRefused

Node = dict[str, Any]

# Python's own JSON readers give up at some 480.
MAX_DEPTH = 300

_EXPRESSION = {"class": "str", "type": "str", "alias": "str", "query_location": "int"}
_TABLE = {"type": "str", "alias": "str", "sample": "sample?", "query_location": "int"}
_QUERY = {"type": "str", "modifiers": "modifier*", "cte_map": "cte_map"}
_TYPE_INFO = {"type": "str", "alias": "str", "extension_info": "none"}
_CALL = {"function_name": "str", "schema": "str", "catalog": "str", "children": "expression*", "distinct": "bool"}

# `x?` may be null, `x*` is a list of x, `x**` a list of lists. `literal` is a value of the text itself: nothing in it
# is looked up or called.
_SHAPES: dict[str, dict[str, str]] = {
    "statement": {"node": "query", "named_param_map": "parameter*"},
    "parameter": {"key": "str", "value": "int"},
    # Queries
    "query:SELECT_NODE": _QUERY
    | {
        "select_list": "expression*",
        "from_table": "table",
        "where_clause": "expression?",
        "group_expressions": "expression*",
        "group_sets": "int**",
        "aggregate_handling": "str",
        "having": "expression?",
        "sample": "sample?",
        "qualify": "expression?",
    },
    "query:SET_OPERATION_NODE": _QUERY | {"setop_type": "str", "left": "query", "right": "query", "setop_all": "bool"},
    "query:RECURSIVE_CTE_NODE": _QUERY
    | {
        "cte_name": "str",
        "union_all": "bool",
        "left": "query",
        "right": "query",
        "aliases": "str*",
        "key_targets": "expression*",
    },
    "cte_map": {"map": "cte*"},
    "cte": {"key": "str", "value": "cte_body"},
    "cte_body": {"aliases": "str*", "query": "statement", "materialized": "str", "key_targets": "expression*"},
    "modifier:ORDER_MODIFIER": {"type": "str", "orders": "order*"},
    "modifier:LIMIT_MODIFIER": {"type": "str", "limit": "expression?", "offset": "expression?"},
    "modifier:LIMIT_PERCENT_MODIFIER": {"type": "str", "limit": "expression?", "offset": "expression?"},
    "modifier:DISTINCT_MODIFIER": {"type": "str", "distinct_on_targets": "expression*"},
    "order": {"type": "str", "null_order": "str", "expression": "expression"},
    "sample": {"sample_size": "value", "is_percentage": "bool", "method": "str", "seed": "int"},
    # What stands in FROM
    "table:BASE_TABLE": _TABLE
    | {
        "schema_name": "str",
        "table_name": "str",
        "column_name_alias": "str*",
        "catalog_name": "str",
        "at_clause": "at?",
    },
    "at": {"unit": "str", "expr": "expression"},
    "table:SUBQUERY": _TABLE | {"subquery": "statement", "column_name_alias": "str*"},
    "table:JOIN": _TABLE
    | {
        "left": "table",
        "right": "table",
        "condition": "expression?",
        "join_type": "str",
        "ref_type": "str",
        "using_columns": "str*",
        "delim_flipped": "bool",
        "duplicate_eliminated_columns": "expression*",
    },
    "table:TABLE_FUNCTION": _TABLE | {"function": "expression", "column_name_alias": "str*", "with_ordinality": "str"},
    "table:EXPRESSION_LIST": _TABLE | {"expected_names": "str*", "expected_types": "type*", "values": "expression**"},
    "table:EMPTY": _TABLE,
    "table:PIVOT": _TABLE
    | {
        "source": "table",
        "aggregates": "expression*",
        "unpivot_names": "str*",
        "pivots": "pivot*",
        "groups": "str*",
        "column_name_alias": "str*",
        "include_nulls": "bool",
    },
    "pivot": {
        "pivot_expressions": "expression*",
        "unpivot_names": "str*",
        "entries": "pivot_entry*",
        "pivot_enum": "str",
    },
    "pivot_entry": {"values": "value*", "star_expr": "expression?", "alias": "str"},
    "table:SHOW_REF": _TABLE
    | {"table_name": "str", "query": "query?", "show_type": "str", "catalog_name": "str", "schema_name": "str"},
    # Expressions
    "expression:BETWEEN": _EXPRESSION | {"input": "expression", "lower": "expression", "upper": "expression"},
    "expression:CASE": _EXPRESSION | {"case_checks": "case_check*", "else_expr": "expression"},
    "case_check": {"when_expr": "expression", "then_expr": "expression"},
    "expression:CAST": _EXPRESSION | {"child": "expression", "cast_type": "type", "try_cast": "bool"},
    "expression:COLLATE": _EXPRESSION | {"child": "expression", "collation": "str"},
    "expression:COLUMN_REF": _EXPRESSION | {"column_names": "str*"},
    "expression:COMPARISON": _EXPRESSION | {"left": "expression", "right": "expression"},
    "expression:CONJUNCTION": _EXPRESSION | {"children": "expression*"},
    "expression:CONSTANT": _EXPRESSION | {"value": "value"},
    "expression:FUNCTION": _EXPRESSION
    | _CALL
    | {"filter": "expression?", "order_bys": "modifier", "is_operator": "bool", "export_state": "bool"},
    "expression:LAMBDA": _EXPRESSION | {"lhs": "expression", "expr": "expression"},
    "expression:OPERATOR": _EXPRESSION | {"children": "expression*"},
    "expression:PARAMETER": _EXPRESSION | {"identifier": "str"},
    "expression:POSITIONAL_REFERENCE": _EXPRESSION | {"index": "int"},
    "expression:STAR": _EXPRESSION
    | {
        "relation_name": "str",
        "exclude_list": "str*",
        "replace_list": "replaced*",
        "columns": "bool",
        "expr": "expression?",
        "qualified_exclude_list": "column*",
        "rename_list": "renamed*",
    },
    "replaced": {"key": "str", "value": "expression"},
    "renamed": {"key": "column", "value": "str"},
    "column": {"catalog": "str", "schema": "str", "table": "str", "column": "str"},
    "expression:SUBQUERY": _EXPRESSION
    | {"subquery_type": "str", "subquery": "statement", "child": "expression?", "comparison_type": "str"},
    "expression:WINDOW": _EXPRESSION
    | _CALL
    | {
        "partitions": "expression*",
        "orders": "order*",
        "start": "str",
        "end": "str",
        "start_expr": "expression?",
        "end_expr": "expression?",
        "offset_expr": "expression?",
        "default_expr": "expression?",
        "ignore_nulls": "bool",
        "filter_expr": "expression?",
        "exclude_clause": "str",
        "arg_orders": "order*",
    },
    # Types and values
    "type": {"id": "str", "type_info": "type_info?"},
    "type_info:GENERIC_TYPE_INFO": _TYPE_INFO,
    "type_info:DECIMAL_TYPE_INFO": _TYPE_INFO | {"width": "int", "scale": "int"},
    "type_info:STRING_TYPE_INFO": _TYPE_INFO | {"collation": "str"},
    "type_info:LIST_TYPE_INFO": _TYPE_INFO | {"child_type": "type"},
    "type_info:ARRAY_TYPE_INFO": _TYPE_INFO | {"child_type": "type", "size": "int"},
    "type_info:STRUCT_TYPE_INFO": _TYPE_INFO | {"child_types": "member*"},
    "type_info:UNBOUND_TYPE_INFO": _TYPE_INFO
    | {"name": "str", "catalog": "str", "schema": "str", "user_type_modifiers": "value*"},
    "member": {"first": "str", "second": "type"},
    "value": {"type": "type", "is_null": "bool", "value": "literal"},
}
_KEYS = {kind: frozenset(shape) for kind, shape in _SHAPES.items()}
# The key that tells the kinds of one sort apart.
_TELLS = {"expression": "class", "query": "type", "table": "type", "modifier": "type", "type_info": "type"}
_LEAVES: dict[str, type] = {"str": str, "bool": bool, "int": int, "none": type(None), "literal": object}


def nodes(statement: object) -> Iterator[tuple[str, Node]]:
    """Every node of a statement with its kind, each seen before what is inside it."""
    waiting: list[tuple[str, object, int]] = [("statement", statement, 0)]
    while waiting:
        shape, found, depth = waiting.pop()
        if shape.endswith("?"):
            if found is not None:
                waiting.append((shape[:-1], found, depth))
        elif shape.endswith("*"):
            if not isinstance(found, list):
                raise _unknown(shape)
            waiting.extend((shape[:-1], each, depth) for each in reversed(found))
        elif shape in _LEAVES:
            _check_leaf(shape, found)
        else:
            kind, node = _kind(shape, found)
            if depth > MAX_DEPTH:
                raise too_deep()
            yield kind, node
            for key, inner in _SHAPES[kind].items():
                # Most are leaves or empty: not worth a turn of the loop.
                if inner in _LEAVES:
                    _check_leaf(inner, node.get(key))
                elif node[key]:
                    waiting.append((inner, node[key], depth + 1))
                elif node[key] is not None and node[key] != []:
                    raise _unknown(kind)


def _check_leaf(shape: str, found: object) -> None:
    if not isinstance(found, _LEAVES[shape]):
        raise _unknown(shape)


def _kind(sort: str, found: object) -> tuple[str, Node]:
    if not isinstance(found, dict):
        raise _unknown(sort)
    kind = f"{sort}:{found.get(_TELLS[sort])}" if sort in _TELLS else sort
    keys = _KEYS.get(kind)
    # A literal that is null has no value.
    if keys is None or (found.keys() != keys and not (kind == "value" and found.keys() == keys - {"value"})):
        raise _unknown(kind)
    return kind, found


def _unknown(kind: str) -> SqlRefused:
    return SqlRefused(
        f"the statement contains something that is not run here: {kind.replace(':', ' ').lower()}",
        hint="write it with plain SELECT, FROM, WHERE, GROUP BY and ORDER BY",
    )


def too_deep() -> SqlRefused:
    return SqlRefused("the statement is nested too deeply", hint="split it with WITH, or shorten chains of operators")
