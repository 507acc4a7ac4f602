"""Storage: where files live, how they survive a power cut, and the journals that tell what happened."""

from frazil.storage.disk import disk_errors
from frazil.storage.journal import Journal
from frazil.storage.objects import Objects, StoredObject, open_objects
from frazil.storage.secrets import read_private
from frazil.storage.sync import sync_files
from frazil.storage.warehouse import Warehouse, local_path

__all__ = [
    "Journal",
    "Objects",
    "StoredObject",
    "Warehouse",
    "disk_errors",
    "local_path",
    "open_objects",
    "read_private",
    "sync_files",
]
