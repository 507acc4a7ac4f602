"""Names of tables and columns in SQL text."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """The name as SQL writes it when it may hold any character."""
    return '"' + name.replace('"', '""') + '"'
