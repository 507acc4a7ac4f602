"""The text of a token: its form, its checksum, and that it is never the same twice."""

from __future__ import annotations

import binascii
import re

from hypothesis import given
from hypothesis import strategies as st

from frazil.access import id_of
from frazil.access.token_secret import ALPHABET, digest, digests_equal, new_id, new_secret
from frazil.runtime.data_dir import TOKEN


def test_form() -> None:
    token_id = new_id()
    secret = new_secret(token_id)
    assert re.fullmatch(r"frz_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}", secret)
    assert id_of(secret) == token_id
    assert TOKEN.match(secret), "it may also be put into a file admin.token"


def test_the_checksum_is_the_crc_32_of_what_stands_before_it() -> None:
    secret = new_secret(new_id())
    number = 0
    for digit in secret[-6:]:
        number = number * 62 + ALPHABET.index(digit)
    assert number == binascii.crc32(secret[:-6].encode())


@given(place=st.integers(0, 65), letter=st.sampled_from(ALPHABET + "_-. "))
def test_any_wrong_letter_is_noticed(place: int, letter: str) -> None:
    secret = new_secret("0123456789ab")
    typo = secret[:place] + letter + secret[place + 1 :]
    assert (id_of(typo) is None) == (typo != secret)


@given(st.text(max_size=80))
def test_other_texts_are_no_tokens(text: str) -> None:
    assert id_of(text) is None


def test_cut_off_or_longer_ones_are_none() -> None:
    secret = new_secret(new_id())
    for wrong in (secret[:-1], secret + "0", secret + "\n", " " + secret, secret.upper(), "frz_" + "a" * 43, ""):
        assert id_of(wrong) is None


def test_secrets_use_all_their_bits() -> None:
    """Of 256 bits, none is the same in 200 secrets."""
    numbers = []
    for _ in range(200):
        number = 0
        for digit in new_secret("0123456789ab")[17:-6]:
            number = number * 62 + ALPHABET.index(digit)
        numbers.append(number)
    assert all(number < 1 << 256 for number in numbers)
    always, never = numbers[0], numbers[0]
    for number in numbers:
        always &= number
        never |= number
    assert always == 0
    assert never == (1 << 256) - 1
    assert len({new_id() for _ in range(1000)}) == 1000


def test_digests() -> None:
    secret = new_secret(new_id())
    assert digests_equal(digest(secret), digest(secret))
    assert not digests_equal(digest(secret), digest(secret + " "))
    assert len(digest(secret)) == 32
