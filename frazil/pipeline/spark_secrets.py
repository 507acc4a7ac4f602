"""Secrets among Spark's settings: which they are, by the key and by the value.

They are refused in the settings file, and kept out of the command line of the JVM, which every user of the machine can
read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEYS = re.compile(
    r"(?i)secret|passw|passphrase|token|credential|\.sas\.|(access|api|private|account|encryption)[._-]?key"
)
_IN_ADDRESS = r"://[^\s/@:]*:[^\s/@]+@"
REDACTION = f"{_KEYS.pattern}|{_IN_ADDRESS}"
"""What Spark hides in its logs and plans, in keys and in values."""

_NO_SECRET = re.compile(
    r"(?i)(files?|path|location|dir|providers?|enabled?|class|regex|interval|timeout|lifetime|period|ratio|length|bits"
    r"|algorithm|principal|renewer|type)$"
)
"""Settings about secrets: where one is, who gives it, how long it lasts."""
_NAMED = r"(?:passw(?:or)?d|secret|token|access[._-]?key)"
_IN_VALUE = re.compile(rf"(?i){_IN_ADDRESS}|{_NAMED}[^\s=&;]*=[^\s&;]|\"[^\"]*{_NAMED}[^\"]*\"\s*:\s*\"[^\"]")
"""An address with a password before the @, `password=…` in an address or among the options of a JVM, and JSON."""


def is_secret(key: str, value: str) -> bool:
    if _IN_VALUE.search(value):
        return True
    return bool(_KEYS.search(key)) and not _NO_SECRET.search(key) and value.lower() not in ("true", "false")


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if not is_secret(key, value)}
