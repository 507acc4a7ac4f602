"""Artifacts: one state of a table as an immutable, verified folder, from its build to its removal.

`build` writes one, a `Shelf` brings it to the bucket and knows which is current, `LocalCopies` fetches it for a server,
`verify` stands between any of these and an answer. Indexes join as a `Part`.
"""

from frazil.serving.artifact.build import build, workplace
from frazil.serving.artifact.contents import CHUNK_SCHEMA, BuildRefused, Contents, Source
from frazil.serving.artifact.documents import Documents
from frazil.serving.artifact.engines import running_engines
from frazil.serving.artifact.fetch import LocalCopies, LocalCopy
from frazil.serving.artifact.manifest import (
    Canary,
    Counts,
    Cut,
    Manifest,
    Model,
    Seal,
    Vectors,
    decode_manifest,
    new_generation,
)
from frazil.serving.artifact.part import OpenPart, Part
from frazil.serving.artifact.register import READABLE, Entry, Policy, Register, State
from frazil.serving.artifact.shelf import PREFIX, Lease, Shelf, Tidied, open_shelf, shelf_names
from frazil.serving.artifact.verify import ArtifactRefused, Fault, inspect, verify

__all__ = [
    "CHUNK_SCHEMA",
    "PREFIX",
    "READABLE",
    "ArtifactRefused",
    "BuildRefused",
    "Canary",
    "Contents",
    "Counts",
    "Cut",
    "Documents",
    "Entry",
    "Fault",
    "Lease",
    "LocalCopies",
    "LocalCopy",
    "Manifest",
    "Model",
    "OpenPart",
    "Part",
    "Policy",
    "Register",
    "Seal",
    "Shelf",
    "Source",
    "State",
    "Tidied",
    "Vectors",
    "build",
    "decode_manifest",
    "inspect",
    "new_generation",
    "open_shelf",
    "running_engines",
    "shelf_names",
    "verify",
    "workplace",
]
