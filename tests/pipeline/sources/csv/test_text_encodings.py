"""Encodings that a load may name, and that none of them takes more than linear time."""

from __future__ import annotations

import codecs
import encodings
import time
from collections.abc import Iterable

import pytest

from frazil.errors import InvalidInput
from frazil.pipeline.sources.csv import parse_load
from frazil.pipeline.sources.csv.text_encodings import ALLOWED, known_encoding

LENGTH = 256 << 10
STRETCHES = (b"a", b"a,1\n", b"\x1b$B\x1b(B", b"~{~}", b"\x0e\x0f", b"\x81\x40", b"\xa1\xa1", b"a-", bytes(range(128)))


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("UTF-8", "utf-8"),
        ("utf8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("UTF-16LE", "utf-16-le"),
        ("latin-1", "iso8859-1"),
        ("ISO-8859-15", "iso8859-15"),
        ("iso_8859-2", "iso8859-2"),
        ("windows-1252", "cp1252"),
        ("CP1251", "cp1251"),
        ("Shift-JIS", "shift_jis"),
        ("macroman", "mac-roman"),
        ("KOI8-R", "koi8-r"),
        ("gb18030", "gb18030"),
    ],
)
def test_an_encoding_is_found_by_the_names_that_people_write(given: str, spelled: str) -> None:
    assert known_encoding(given) == spelled


@pytest.mark.parametrize(
    "name",
    [
        *"punycode idna unicode_escape raw_unicode_escape rot13 hex bz2_codec zlib base64 uu quopri undefined".split(),
        *"charmap utf-7 mbcs ../utf_8 aliases klingon".split(),
        *("", "utf-8\0", "u" * 10_000, "utf\n8" * 20),
    ],
)
def test_other_codecs_are_refused_when_the_load_is_asked_for(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        known_encoding(name)
    assert refused.value.code == "bad_encoding" and len(refused.value.message) < 200
    if name:
        with pytest.raises(InvalidInput) as refused:
            parse_load({"table": "t", "files": ["/a.csv"], "encoding": name})
        assert refused.value.code == "bad_encoding"


def test_a_misspelled_encoding_gets_a_proposal() -> None:
    with pytest.raises(InvalidInput) as refused:
        known_encoding("cp1225")
    assert "did you mean 'cp125" in refused.value.hint


def test_names_that_are_none_are_not_remembered() -> None:
    known_encoding("cp1252")
    remembered = getattr(encodings, "_cache")  # noqa: B009
    before = len(remembered)
    for number in range(100):
        with pytest.raises(InvalidInput):
            known_encoding(f"no_such_{number}")
    assert len(remembered) == before


def test_every_allowed_encoding_is_read_in_linear_time() -> None:
    """Next to a control of the same run. Quadratic codecs are 1,000 times slower at this length."""
    control = max(_seconds("cp1252"), _seconds("gb18030"), 0.001)
    slow = {
        name: seconds
        for name in dict.fromkeys(codecs.lookup(name).name for name in ALLOWED)
        if (seconds := _seconds(name)) > 50 * control
    }
    assert not slow
    assert _seconds("punycode", (b"a-", b"a")) > 50 * control, "the measure finds one that is not"


def _seconds(name: str, stretches: Iterable[bytes] = STRETCHES) -> float:
    began = time.process_time()
    for stretch in stretches:
        try:
            codecs.getincrementaldecoder(name)().decode(stretch * (LENGTH // len(stretch)), True)
        except UnicodeError:
            continue
    return time.process_time() - began
