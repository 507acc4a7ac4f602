"""Quack: one artifact, read by other DuckDBs over their own remote protocol.

The protocol gives whoever has the token all of SQL, and its own checks can be gone around. So the walls are those of
the operating system: the worker holds one read-only file, and can reach nothing else.
"""

from frazil.serving.quack.following import QuackOfTable
from frazil.serving.quack.server import QuackServer

__all__ = ["QuackOfTable", "QuackServer"]
