"""Storage: objects in a folder or S3, fsync, append logs, secrets, locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.storage.append_log import AppendLog as AppendLog
    from frazil.storage.disk_errors import translated_disk_errors as translated_disk_errors
    from frazil.storage.folder_lock import FolderLock as FolderLock
    from frazil.storage.folder_lock import exclusive as exclusive
    from frazil.storage.folder_lock import remove_if_unheld as remove_if_unheld
    from frazil.storage.folder_lock import remove_unheld as remove_unheld
    from frazil.storage.fsync import sync_files as sync_files
    from frazil.storage.journal import Journal as Journal
    from frazil.storage.objects import Objects as Objects
    from frazil.storage.objects import open_objects as open_objects
    from frazil.storage.secrets import read_private as read_private
    from frazil.storage.settings import WarehouseSettings as WarehouseSettings
    from frazil.storage.warehouse import Warehouse as Warehouse
    from frazil.storage.warehouse import local_path as local_path

__getattr__, __all__ = lazy_door(__name__)
