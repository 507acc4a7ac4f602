"""Text index of an artifact: one entry for each row, so that its ordinals are row numbers.

Rows and not chunks: `+tea -cake` is about a document, and a phrase or two required words may stand on both sides
of a chunk's border. It also knows the columns apart, which chunks do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from frazil.serving.artifacts.contents import BuildRefused, Contents
from frazil.serving.artifacts.manifest import Canary
from frazil.serving.artifacts.parts.part import OpenPart
from frazil.serving.text.index_files import build, open_text
from frazil.serving.text.layout import TextLayout
from frazil.serving.text.text_index import TextIndex

TEXT = "text"
"""The folder of its files, below that of the artifact."""
_AT_ONCE = 4096
_CANARIES = 4
_CANDIDATES = 32
_WORDS = 8
# Scores are sums of float32, and the order of the sum may differ between two machines.
_CLEAR = 1e-3


@dataclass(frozen=True)
class TextPart:
    layout: TextLayout
    name: str = "text"
    engine: str = "tantivy"
    holds: Literal["rows", "chunks", "vectors"] = "rows"

    def write(self, folder: Path, contents: Contents) -> Sequence[str]:
        place = folder / TEXT
        place.mkdir()
        report = build(self.layout, self._documents(contents), place)
        return [f"{TEXT}/{path}" for path in report.files]

    def open(self, folder: Path) -> OpenText:
        return OpenText(open_text(folder / TEXT))

    def canaries(self, opened: OpenPart, contents: Contents) -> Sequence[Canary]:
        """Words of a row, all of them required: that row comes first, if no other has them so densely."""
        rows = contents.rows.num_rows
        numbers = np.unique(np.linspace(0, rows - 1, _CANDIDATES).astype(int)).tolist() if rows else []
        texts = contents.take_rows(numbers, self.layout.columns).to_pylist()
        assert isinstance(opened, OpenText)
        found: list[Canary] = []
        for number, row in zip(numbers, texts, strict=True):
            query = self._words(row)
            if not query:
                continue
            scores, ordinals = opened.index.search(query, 2)
            if not len(ordinals):
                raise BuildRefused(f"the text index does not find row {number} by its own words", code="canary_failed")
            if ordinals[0] == number and (len(scores) == 1 or scores[0] - scores[1] > _CLEAR):
                found.append(Canary(self.name, (number,), words=query))
            if len(found) == _CANARIES:
                break
        return found

    def _documents(self, contents: Contents) -> Iterator[Mapping[str, str | None]]:
        for batch in contents.rows.select(list(self.layout.columns)).to_batches(max_chunksize=_AT_ONCE):
            yield from batch.to_pylist()

    def _words(self, row: Mapping[str, str | None]) -> str:
        for column in self.layout.columns:
            words = [word for word in (row[column] or "").split() if word.isalpha() and word.islower()]
            if words:
                longest = sorted(dict.fromkeys(words), key=lambda word: (-len(word), word))[:_WORDS]
                return " ".join(f"+{column}:{word}" for word in longest)
        return ""


class OpenText:
    def __init__(self, index: TextIndex) -> None:
        self.index = index

    @property
    def held(self) -> int:
        return self.index.rows

    def answer(self, canary: Canary) -> tuple[int, ...]:
        _, ordinals = self.index.search(canary.words, len(canary.expected))
        return tuple(ordinals.tolist())

    def close(self) -> None:
        """The files stay mapped until nobody has the index any more."""
        del self.index
