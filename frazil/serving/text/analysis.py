"""Text analysis, from text to terms: the same way when documents are indexed, queries are read and hits are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import tantivy

from frazil.errors import InvalidInput

STEMMED = (
    "arabic danish dutch english finnish french german greek hungarian italian norwegian portuguese romanian russian "
    "spanish swedish tamil turkish"
).split()
LANGUAGES = ("none", *STEMMED)
DEFAULT_LANGUAGE = "english"
# Longer ones are hashes and encoded files, which nobody searches for and which would fill the dictionary.
_LONGEST_TERM = 100


@dataclass(frozen=True)
class TextToken:
    """A term and the characters of the text that it came from."""

    term: str
    start: int
    end: int


class Analyzer:
    """Words by letters and digits, lower-cased, stemmed, and without accents. `language` "none" stems nothing.

    Accents go last, because stemmers need them; so "cafe" finds "café".
    """

    def __init__(self, language: str, *, stemmed: bool = True) -> None:
        if language not in LANGUAGES:
            raise InvalidInput(
                f"there is no stemming for the language {language!r}",
                code="bad_language",
                hint=f"one of {', '.join(LANGUAGES)}",
            )
        builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        builder = builder.filter(tantivy.Filter.remove_long(_LONGEST_TERM)).filter(tantivy.Filter.lowercase())
        if stemmed and language != "none":
            builder = builder.filter(tantivy.Filter.stemmer(language))
        self.engine = builder.filter(tantivy.Filter.ascii_fold()).build()

    def terms(self, text: str) -> list[str]:
        return self.engine.analyze(text)

    def tokens(self, text: str, wanted: Callable[[str], bool] = lambda term: True) -> list[TextToken]:
        """The tokens whose terms are wanted."""
        found = self.engine.pre_tokenize(text).tokens
        return [
            TextToken(term, token.char_offset_from, token.char_offset_to)
            for token in found
            if wanted(term := token.text)
        ]


@lru_cache(maxsize=64)
def stems(language: str) -> Analyzer:
    """What documents and queries are compared by."""
    return Analyzer(language)


@lru_cache(maxsize=64)
def words(language: str) -> Analyzer:
    """Whole words: what a prefix is the beginning of ("runn" begins "running", but not its stem)."""
    return Analyzer(language, stemmed=False)
