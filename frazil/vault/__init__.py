"""A folder of Markdown notes as two entity tables, `notes` and `note_links`, and the way back to files."""

from __future__ import annotations

from frazil.vault.columns import parse_columns
from frazil.vault.export import ExportReport, export
from frazil.vault.sync import SyncReport, VaultSync, VaultTables
from frazil.vault.tables import ClientTables
from frazil.vault.watching import follow

__all__ = [
    "ClientTables",
    "ExportReport",
    "SyncReport",
    "VaultSync",
    "VaultTables",
    "export",
    "follow",
    "parse_columns",
]
