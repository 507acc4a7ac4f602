"""Text indexes: words, phrases, prefixes and columns, ranked by BM25, filtered or not, with a snippet of each hit."""

from __future__ import annotations

from frazil.serving.text.analysis import DEFAULT_LANGUAGE, LANGUAGES
from frazil.serving.text.files import TextReport, build, open_text
from frazil.serving.text.fresh import FreshText
from frazil.serving.text.layout import TextLayout
from frazil.serving.text.query import TextQuery, read_query
from frazil.serving.text.snippet import Snippet, snippet
from frazil.serving.text.text_index import TextIndex

__all__ = [
    "DEFAULT_LANGUAGE",
    "LANGUAGES",
    "FreshText",
    "Snippet",
    "TextIndex",
    "TextLayout",
    "TextQuery",
    "TextReport",
    "build",
    "open_text",
    "read_query",
    "snippet",
]
