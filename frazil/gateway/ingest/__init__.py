"""Ingest: from a decoded request to a durable receipt, each event id once."""

from frazil.gateway.ingest.declarations import Declarations
from frazil.gateway.ingest.directory import TableDirectory
from frazil.gateway.ingest.receipt import Prepared, Receipt, SchemaMoved
from frazil.gateway.ingest.writer import TableWriter
from frazil.gateway.ingest.writers import TableWriters

__all__ = ["Declarations", "Prepared", "Receipt", "SchemaMoved", "TableDirectory", "TableWriter", "TableWriters"]
