"""Ingest: from a decoded request to a durable receipt, each event id once."""

from frazil.gateway.ingest.declarations import Declarations
from frazil.gateway.ingest.directory import TableDirectory, source_of
from frazil.gateway.ingest.marks import check_mark, check_reached, until_committed
from frazil.gateway.ingest.receipt import Prepared, Receipt, SchemaMoved, TableReplaced
from frazil.gateway.ingest.tail import Extent, Tail
from frazil.gateway.ingest.writer import TableWriter
from frazil.gateway.ingest.writers import TableWriters

__all__ = [
    "Declarations",
    "Extent",
    "Prepared",
    "Receipt",
    "SchemaMoved",
    "TableDirectory",
    "TableReplaced",
    "TableWriter",
    "TableWriters",
    "Tail",
    "check_mark",
    "check_reached",
    "source_of",
    "until_committed",
]
