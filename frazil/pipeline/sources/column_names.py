"""Column names from a header, as a table takes them; the same header gives the same names every time.

Letters lose their accents, what is not ASCII and not a letter with an accent becomes `_`, as do runs of anything but
letters and digits. `Größe (cm)` is `grosse_cm`, `2024` is `c_2024`, the third field without a name is `column_3`, the
second `id` is `id_2`. Names that are clean already stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from frazil.events.declaration import NAME

MAX_LENGTH = 63
# Letters that Unicode does not take apart.
_FOLDED = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i"})


def clean(name: str, position: int = 1) -> str:
    """One name by itself; `position` counts from 1 and names the field that has none."""
    if NAME.match(name):
        return name
    folded = unicodedata.normalize("NFKD", name.lower().translate(_FOLDED))
    plain = "".join(letter for letter in folded if not unicodedata.combining(letter)).lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if not name:
        return f"column_{position}"
    return (f"c_{name}" if name[0].isdigit() else name)[:MAX_LENGTH]


def clean_names(header: Sequence[str]) -> tuple[str, ...]:
    """The names of all columns, each once. The first of equal names keeps it, the others get `_2`, `_3` and so on."""
    wanted = [clean(name, position) for position, name in enumerate(header, start=1)]
    taken = set(wanted)
    seen: set[str] = set()
    found = []
    for name in wanted:
        unique, number = name, 2
        while unique in seen or (unique != name and unique in taken):
            suffix = f"_{number}"
            unique, number = name[: MAX_LENGTH - len(suffix)] + suffix, number + 1
        seen.add(unique)
        found.append(unique)
    return tuple(found)


def numbered(width: int) -> tuple[str, ...]:
    """The names of the columns of a file without a header."""
    return tuple(f"column_{position}" for position in range(1, width + 1))
