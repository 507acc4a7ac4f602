"""WordLlama: the mean of word vectors, 256 numbers, from weights that come with its wheel.

Only the files of the wheel are used. Its own loader looks for the tokenizer in a folder that the wheel does not have,
and then downloads; and importing it configures the logging of the whole process.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from frazil.embedding.model import Vectors, clean, files_version, unit
from frazil.errors import Misconfigured

# How texts become vectors, beside the weights: change it with the code below, and every text is embedded again.
_RECIPE = "wordllama mean 1"
_AT_ONCE = 256
"""Texts that the tokenizer's threads share."""


class WordLlama:
    """Threads may share it: nothing in it changes after loading."""

    def __init__(self, name: str = "wordllama") -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        weights, words = _files()
        self.name = name
        self.version = files_version(_RECIPE, weights, words)
        self._table = np.ascontiguousarray(load_file(weights)["embedding.weight"].astype(np.float32))
        self._tokenizer = Tokenizer.from_file(str(words))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @property
    def dims(self) -> int:
        return int(self._table.shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dims), dtype=np.float32)
        for first in range(0, len(texts), _AT_ONCE):
            for index, words in enumerate(self._words(texts[first : first + _AT_ONCE]), start=first):
                if words:
                    # Text by text: summing all of a batch by `np.add.reduceat` takes eight times as long.
                    vectors[index] = self._table.take(words, axis=0, mode="clip").mean(axis=0)
        return unit(vectors)

    def _words(self, texts: Sequence[str]) -> list[list[int]]:
        # What is only white space has words too, of white space, and a vector that is near to nothing meant.
        cleaned = [clean(text) if text.strip() else "" for text in texts]
        if len(cleaned) == 1:  # a query: not worth waking the tokenizer's threads
            return [self._tokenizer.encode(cleaned[0], add_special_tokens=False).ids if cleaned[0] else []]
        encoded = self._tokenizer.encode_batch_fast(cleaned, add_special_tokens=False)
        return [each.ids if text else [] for each, text in zip(encoded, cleaned, strict=True)]


def _files() -> tuple[Path, Path]:
    """The weights and the tokenizer in the wheel."""
    found = find_spec("wordllama")
    if found is None or found.origin is None:
        raise Misconfigured(
            "the model wordllama needs the package of its weights", code="model_missing", hint="pip install wordllama"
        )
    folder = Path(found.origin).parent
    files = (
        folder / "weights" / "l2_supercat_256.safetensors",
        folder / "tokenizers" / "l2_supercat_tokenizer_config.json",
    )
    for path in files:
        if not path.is_file():
            raise Misconfigured(
                f"the installed wordllama has no {path.name}",
                code="model_missing",
                hint='install the version that frazil asks for: pip install "wordllama>=0.4.0.post1,<0.5"',
            )
    return files
