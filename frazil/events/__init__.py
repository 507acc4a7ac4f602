"""Events: what producers send, how it travels, and the tokens that say how far a reader is."""

from frazil.events.position import Mark, Token, position, sequence_of, start_of
from frazil.events.table import SYSTEM_NAMESPACE, Column, TableSpec, entity_of, history_of, parse_table, table_name

__all__ = [
    "SYSTEM_NAMESPACE",
    "Column",
    "Mark",
    "TableSpec",
    "Token",
    "entity_of",
    "history_of",
    "parse_table",
    "position",
    "sequence_of",
    "start_of",
    "table_name",
]
