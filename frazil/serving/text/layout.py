"""Text layout: the declared text columns of a table and the language of their words.

A column is two fields: its stems with their positions, which words and phrases are found by, and its whole words
without, which prefixes are. Fields are numbered, so that no column's name can collide with ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import tantivy

from frazil.errors import InvalidInput
from frazil.serving.text.analysis import DEFAULT_LANGUAGE, LANGUAGES, stems, words

ORDINAL = "ordinal"


@dataclass(frozen=True)
class TextLayout:
    columns: tuple[str, ...]
    language: str = DEFAULT_LANGUAGE

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise InvalidInput(
                f"text columns must be named, each once: {list(self.columns)}",
                code="bad_text_columns",
                hint='declare them as "text": ["title", "body"]',
            )
        if self.language not in LANGUAGES:
            stems(self.language)

    def schema(self) -> tantivy.Schema:
        builder = tantivy.SchemaBuilder().add_unsigned_field(ORDINAL, indexed=True, fast=True)
        for number in range(len(self.columns)):
            builder.add_text_field(stem_field(number), tokenizer_name="stems", index_option="position")
            builder.add_text_field(word_field(number), tokenizer_name="words", index_option="basic")
        return builder.build()

    def teach(self, index: tantivy.Index) -> None:
        """An opened index knows its analyzers by name only."""
        index.register_tokenizer("stems", stems(self.language).engine)
        index.register_tokenizer("words", words(self.language).engine)


def stem_field(number: int) -> str:
    return f"stems_{number}"


def word_field(number: int) -> str:
    return f"words_{number}"
