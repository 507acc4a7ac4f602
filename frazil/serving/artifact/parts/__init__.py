"""The indexes of an artifact that searches ask: by vector and by words. Importing this loads their engines."""

from frazil.serving.artifact.parts.index import IndexPart, OpenIndex
from frazil.serving.artifact.parts.text import TEXT, OpenText, TextPart

__all__ = ["TEXT", "IndexPart", "OpenIndex", "OpenText", "TextPart"]
