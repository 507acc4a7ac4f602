"""Storage: where files live, how they survive a power cut, and the journals that tell what happened."""

from frazil.storage.journal import Journal
from frazil.storage.sync import sync_files
from frazil.storage.warehouse import Warehouse, local_path

__all__ = ["Journal", "Warehouse", "local_path", "sync_files"]
