"""Vault: folders of Markdown notes as tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.vault.columns import parse_columns as parse_columns
    from frazil.vault.export import ExportReport as ExportReport
    from frazil.vault.export import export_notes as export_notes
    from frazil.vault.sync import SyncReport as SyncReport
    from frazil.vault.sync import VaultSync as VaultSync
    from frazil.vault.tables import ClientTables as ClientTables
    from frazil.vault.vault_watch import follow as follow

__getattr__, __all__ = lazy_door(__name__)
