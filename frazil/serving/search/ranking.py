"""Rankings that are exact to the last place, whatever the engine does with equals.

An engine returns its n best, and which of several equals are among them is its own affair. So a place counts only once
something worse was seen: then everything that ties with it is there, and the lower number comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from frazil.serving.bitmap import Ordinals

Floats = npt.NDArray[np.float32]
Fetch = Callable[[int], tuple[Floats, Ordinals]]
# Beyond what is wanted, at first: a tie at the last place, and documents with several chunks.
_SPARE = 6
_WIDER = 4


@dataclass(frozen=True)
class Ranked:
    """Different documents, best first: the score of each, its number, and which of its pieces scored."""

    scores: Floats
    numbers: Ordinals
    pieces: Ordinals

    def __len__(self) -> int:
        return len(self.numbers)

    def first(self, wanted: int) -> Ranked:
        return Ranked(self.scores[:wanted], self.numbers[:wanted], self.pieces[:wanted])


NOTHING = Ranked(np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int64))


def ranked(
    fetch: Fetch,
    wanted: int,
    total: int,
    *,
    homes: Ordinals | None = None,
    is_exact: bool = False,
    widest: int,
    everything: Fetch | None = None,
) -> Ranked:
    """The best documents out of `total` pieces, as many as are wanted, if there are so many.

    `fetch(n)` gives the n best pieces, n up to `widest`; beyond that `everything` gives all. `homes` has the
    number of each piece's document; without, a piece is a document. With `is_exact`, of equals that do not all fit
    `fetch` leaves out those of the highest numbers by itself.
    """
    if total <= 0:
        return NOTHING
    count = (wanted if homes is None else 2 * wanted) + (0 if is_exact else _SPARE)
    while True:
        count = min(count, total)
        is_far = count > widest
        if is_far and everything is not None:
            count = total
        scores, pieces = everything(count) if is_far and everything is not None else fetch(min(count, widest))
        # Most come in order. Sorting lets go of the interpreter, and a search among many waits to get it back.
        if not (scores[:-1] > scores[1:]).all():
            order = np.lexsort((pieces, -scores))
            scores, pieces = scores[order], pieces[order]
        # Without homes a piece is a document, and all of them stand where they belong already.
        places = None if homes is None else _first_of_each(homes[pieces])
        if len(pieces) < count or count >= total or (is_far and everything is None):
            break
        leading = scores if places is None else scores[places]
        sure = len(leading) if is_exact else int(np.count_nonzero(leading > scores[-1]))
        if sure >= wanted:
            places = None if places is None else places[:sure]
            break
        count *= _WIDER
    if homes is None or places is None:
        return Ranked(scores, pieces, pieces).first(wanted)
    return _ordered(scores[places], homes[pieces[places]], pieces[places]).first(wanted)


def joined(one: Ranked, other: Ranked, wanted: int) -> Ranked:
    """The best of two rankings of different documents, with scores of the same kind."""
    if not len(other) or not len(one):
        return (one if len(one) else other).first(wanted)
    return _ordered(
        np.concatenate([one.scores, other.scores]),
        np.concatenate([one.numbers, other.numbers]),
        np.concatenate([one.pieces, other.pieces]),
    ).first(wanted)


def _ordered(scores: Floats, numbers: Ordinals, pieces: Ordinals) -> Ranked:
    order = np.lexsort((pieces, numbers, -scores))
    return Ranked(scores[order], numbers[order], pieces[order])


def _first_of_each(numbers: Ordinals) -> Ordinals:
    """Where each number stands first."""
    _, places = np.unique(numbers, return_index=True)
    places.sort()
    return places
