"""Artifacts: verified folders of rows, vectors and indexes; their register and local copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy import lazy_door

if TYPE_CHECKING:
    from frazil.serving.artifacts.announcements import AnnouncementReader as AnnouncementReader
    from frazil.serving.artifacts.announcements import announce as announce
    from frazil.serving.artifacts.cleanup import ShelfCleanup as ShelfCleanup
    from frazil.serving.artifacts.cleanup import clear_shelves as clear_shelves
    from frazil.serving.artifacts.contents import CHUNK_SCHEMA as CHUNK_SCHEMA
    from frazil.serving.artifacts.contents import ArtifactSource as ArtifactSource
    from frazil.serving.artifacts.local_copies import LocalCopies as LocalCopies
    from frazil.serving.artifacts.manifest import MANIFEST as MANIFEST
    from frazil.serving.artifacts.manifest import ArtifactModel as ArtifactModel
    from frazil.serving.artifacts.manifest import Manifest as Manifest
    from frazil.serving.artifacts.manifest import SourceState as SourceState
    from frazil.serving.artifacts.manifest import decode_manifest as decode_manifest
    from frazil.serving.artifacts.manifest import seal_of as seal_of
    from frazil.serving.artifacts.register import ArtifactEntry as ArtifactEntry
    from frazil.serving.artifacts.register import ArtifactState as ArtifactState
    from frazil.serving.artifacts.register import Register as Register
    from frazil.serving.artifacts.shelf import PREFIX as PREFIX
    from frazil.serving.artifacts.shelf import Lease as Lease
    from frazil.serving.artifacts.shelf import Shelf as Shelf
    from frazil.serving.artifacts.shelf import open_shelf as open_shelf
    from frazil.serving.artifacts.shelf import shelf_names as shelf_names
    from frazil.serving.artifacts.verify import ArtifactRefused as ArtifactRefused
    from frazil.serving.artifacts.write import workplace as workplace

__getattr__, __all__ = lazy_door(__name__)
