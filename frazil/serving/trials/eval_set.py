"""Eval set: the queries of a trial, and the truth about them.

Made from the data, a query is a sentence out of a chunk, or some words of it where it is one sentence, embedded like
what a person asks: near to what is stored, and not equal to it. Vectors that users bring have no model to ask; there a
query lies between two stored vectors, nearer to one. An index that is only asked for what it holds looks better than
it is: the nearest is at distance zero, and every walk ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from frazil.embedding import ModelSpec, chunked, embedded, open_model
from frazil.errors import Conflict, InvalidInput
from frazil.events.declaration import Chunking
from frazil.registry import ProgressCallback
from frazil.requests import EvalQuestion
from frazil.serving.trials.measure import QUERIES, TRUE_SCORES, VECTORS
from frazil.serving.vectors.brute_force import nearest_by_brute_force
from frazil.serving.vectors.exact_search import Floats

if TYPE_CHECKING:
    from frazil.serving.trials.dataset import Dataset

_SENTENCE = Chunking(size=160, overlap=0, by="sentence")
_LEAST_WORDS = 3
_NEARER = 0.75
_EQUAL = 1 - 1e-5
_LEAST_QUERIES = 10


@dataclass(frozen=True)
class EvalSet:
    questions: tuple[EvalQuestion, ...]
    asked: str
    """sentences, mixed or given."""

    @property
    def id(self) -> str:
        return blake2b(msgspec.json.encode(self.questions), digest_size=8).hexdigest()


def made_from(dataset: Dataset, number: int, seed: int, *, has_model: bool) -> EvalSet:
    """So many queries from the data, or fewer if there is less; the document of each is the one expected."""
    random = np.random.default_rng([seed, 1])
    order = random.permutation(len(dataset)).tolist()
    if not has_model or not any(text.strip() for text in dataset.texts):
        return EvalSet(tuple(_mixed(dataset, order[:number], random)), "mixed")
    found: list[EvalQuestion] = []
    for ordinal in order:
        piece = piece_of(dataset.texts[ordinal], random)
        if piece is not None:
            found.append(EvalQuestion(text=piece, expected=(dataset.documents[ordinal],)))
        if len(found) == number:
            break
    if not found:
        raise InvalidInput(
            "no chunk has a sentence that could be a query", code="no_queries", hint="give an eval set: --eval FILE"
        )
    return EvalSet(tuple(found), "sentences")


def piece_of(text: str, random: np.random.Generator) -> str | None:
    """A sentence of the text that is not all of it; else some words from its middle; None if it has too few."""
    sentences = [chunk.text for chunk in chunked(text, _SENTENCE)]
    if len(sentences) > 1:
        long = [one for one in sentences if len(one.split()) >= _LEAST_WORDS]
        return long[int(random.integers(len(long)))] if long else None
    words = text.split()
    if len(words) <= _LEAST_WORDS:
        return None
    take = max(_LEAST_WORDS, len(words) * 2 // 3)
    first = int(random.integers(len(words) - take + 1))
    return " ".join(words[first : first + take])


def _mixed(dataset: Dataset, ordinals: Sequence[int], random: np.random.Generator) -> list[EvalQuestion]:
    vectors = dataset.vectors
    found = []
    for ordinal in ordinals:
        other = int(random.integers(len(vectors)))
        vector = _NEARER * vectors[ordinal] + (1 - _NEARER) * vectors[other]
        length = float(np.linalg.norm(vector))
        if length > 0:
            found.append(EvalQuestion(vector=tuple((vector / length).tolist())))
    return found


@dataclass(frozen=True)
class PreparedEvalSet:
    """Which questions became queries, in their order, and why others did not."""

    kept: tuple[int, ...]
    left_out: dict[str, int]


@dataclass(frozen=True)
class Prepare:
    """Embed the questions and find the truth about them by brute force; both are written beside the vectors."""

    folder: Path
    questions: tuple[EvalQuestion, ...]
    model: ModelSpec | None
    version: str
    k: int
    is_made: bool
    """Queries that were made and came out equal to a stored vector are left out."""

    def run(self, report_progress: ProgressCallback | None = None) -> PreparedEvalSet:
        vectors: Floats = np.load(self.folder / VECTORS, mmap_mode="r")
        kept, queries, left_out = embedded_questions(self.questions, self.model, vectors.shape[1], self.version)
        scores, _ = nearest_by_brute_force(vectors, queries, self.k)
        if self.is_made and len(queries):
            new = np.flatnonzero(scores[:, 0] < _EQUAL)
            if len(new) >= min(_LEAST_QUERIES, len(queries)):
                left_out = {**left_out, "equal to a stored vector": len(queries) - len(new)}
                kept, queries, scores = kept[new], queries[new], scores[new]
        if not len(queries):
            raise InvalidInput("no query has a vector", code="no_queries", hint="look at the texts and the model")
        np.save(self.folder / QUERIES, np.ascontiguousarray(queries, dtype=np.float32))
        np.save(self.folder / TRUE_SCORES, scores)
        return PreparedEvalSet(tuple(kept.tolist()), {why: count for why, count in left_out.items() if count})


def embedded_questions(
    questions: Sequence[EvalQuestion], model: ModelSpec | None, dims: int, version: str
) -> tuple[npt.NDArray[np.int64], Floats, dict[str, int]]:
    """The numbers of the questions that have a vector, their vectors at length 1, and how many have none, and why."""
    vectors = np.zeros((len(questions), dims), dtype=np.float32)
    left_out: dict[str, int] = {}
    for number, question in enumerate(questions):
        if question.vector is None:
            continue
        if len(question.vector) != dims:
            raise InvalidInput(
                f"the vector of query {number} has {len(question.vector)} numbers, those of the table {dims}",
                code="wrong_dimension",
                hint="embed it with the model of the table",
            )
        given = np.array(question.vector, dtype=np.float64)
        length = np.linalg.norm(given)
        vectors[number] = given / length if length > 0 else 0
        if not vectors[number].any():
            left_out["zero"] = left_out.get("zero", 0) + 1
    texts = [number for number, question in enumerate(questions) if question.text is not None]
    if texts:
        if model is None:
            raise InvalidInput(
                "the vectors of this table are its own: there is no model for a text",
                code="no_model",
                hint='give vectors: {"vector": [0.1, 0.2]}',
            )
        opened = open_model(model)
        if (opened.version, opened.dims) != (version, dims):
            raise Conflict(
                f"the vectors are of version {version} of {model.name!r} ({dims} numbers), and the model here is"
                f" {opened.version} ({opened.dims})",
                code="model_moved",
                hint="embed the table again, then build it",
            )
        outcome = embedded(opened, [questions[number].text or "" for number in texts])
        vectors[np.array(texts)[outcome.of]] = outcome.vectors
        left_out |= outcome.reasons()
    kept = np.flatnonzero(vectors.any(axis=1)).astype(np.int64)
    return kept, vectors[kept], left_out


def ranks(found: npt.NDArray[np.int64], documents: Sequence[str], expected: Sequence[Sequence[str]]) -> list[int]:
    """For each query that expects something, the place of the first document that it expects; 0 if it is not there.

    A document counts once, at its best chunk.
    """
    places = []
    for ordinals, wanted in zip(found, expected, strict=True):
        if not wanted:
            continue
        names = list(dict.fromkeys(documents[ordinal] for ordinal in ordinals.tolist() if ordinal >= 0))
        places.append(next((place for place, name in enumerate(names, 1) if name in set(wanted)), 0))
    return places


def hit_rate(places: Sequence[int]) -> float | None:
    return sum(place > 0 for place in places) / len(places) if places else None


def mean_reciprocal_rank(places: Sequence[int]) -> float | None:
    return sum(1 / place for place in places if place) / len(places) if places else None
