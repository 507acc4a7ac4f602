"""Token secret, the text of a token: `frz_<id>_<secret><checksum>`.

The id is public; the token is found by it. The secret is 256 random bits. The checksum shows without a look-up whether
a text is a token: a typo is refused at once, and scanners for leaked secrets find tokens without false
alarms.

Only the SHA-256 of the whole text is kept. A fast hash is enough: slow ones like argon2 are for passwords, which can be
guessed, and 2^256 secrets cannot be tried with any hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX = "frz_"
_ID_LENGTH = 12
_SECRET_LENGTH = 43  # 62^43 is just above 2^256
_CHECKSUM_LENGTH = 6  # 62^6 is above 2^32
_FORM = re.compile(r"frz_(?P<id>[0-9A-Za-z]{12})_[0-9A-Za-z]{43}(?P<checksum>[0-9A-Za-z]{6})\Z")


def new_id() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(_ID_LENGTH))


def new_secret(token_id: str) -> str:
    """The whole text of a token. It exists here and at its holder, and nowhere else."""
    text = f"{PREFIX}{token_id}_{_base62(secrets.randbits(256), _SECRET_LENGTH)}"
    return text + _checksum(text)


def id_of(text: str) -> str | None:
    """The id in the text, or None if this is not a token, or one with a typo."""
    match = _FORM.match(text)
    if match is None or match["checksum"] != _checksum(text[:-_CHECKSUM_LENGTH]):
        return None
    return match["id"]


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def digests_equal(first: bytes, second: bytes) -> bool:
    """Whether two digests are equal, in the same time for each that is not."""
    return hmac.compare_digest(first, second)


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
