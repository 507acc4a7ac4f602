"""`run_vault.py sync|export FOLDER VAULT` on tables that are a log in FOLDER: a process that tests kill."""

from __future__ import annotations

import sys
from pathlib import Path

from frazil.vault import VaultSync
from frazil.vault.export import export_notes
from tests.vault.log_tables import LogTables

if __name__ == "__main__":
    what, folder, vault = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    tables = LogTables(folder)
    if what == "sync":
        print(VaultSync(vault, "v", tables).run().published)
    else:
        print(export_notes(tables.rows("notes", "v"), vault, "v", {}, force=True).written)
