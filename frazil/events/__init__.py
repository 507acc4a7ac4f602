"""Events: what producers send, how it travels, and the tokens that say how far a reader is."""

from frazil.events.position import Mark, Token, position, sequence_of, start_of
from frazil.events.table import Column, TableSpec, parse_table, table_name

__all__ = [
    "Column",
    "Mark",
    "TableSpec",
    "Token",
    "parse_table",
    "position",
    "sequence_of",
    "start_of",
    "table_name",
]
