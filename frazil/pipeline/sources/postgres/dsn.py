"""DSN of a Postgres, as a value that does not show its password.

A DSN comes as a URL or as `key=value` words, both as libpq reads them. It is taken apart here and handed to the driver
in one form only, so that libpq never has a malformed text to quote in an error.

Only options that say where the server is and how the connection is kept are taken. Others make libpq read files of this
machine, or change what the server answers; each is refused with the reason.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn
from urllib.parse import quote, unquote_to_bytes

from frazil.errors import Misconfigured

HIDDEN = "***"
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_TAKEN = (
    *("user", "password", "host", "port", "dbname", "sslmode", "sslrootcert", "sslsni", "channel_binding"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "require_auth", "gssencmode", "connect_timeout"),
    *("application_name", "client_encoding", "keepalives", "keepalives_idle", "keepalives_interval"),
    *("keepalives_count", "tcp_user_timeout", "target_session_attrs", "load_balance_hosts"),
)
_CERTIFICATE = "it names a file of this machine; certificates of clients are not supported"
_SERVICE = "it takes the connection from a file; write host, port, user and dbname"
_REFUSED = {
    "service": _SERVICE,
    "servicefile": _SERVICE,
    "passfile": "it takes the password from a file of all passwords; write password=…, or the whole DSN into dsn_file",
    "options": "it changes settings of the session, on which the values that are read depend",
    "hostaddr": "it connects to another address than the one whose name is checked; write host",
    "sslcert": _CERTIFICATE,
    "sslkey": _CERTIFICATE,
    "sslpassword": _CERTIFICATE,
    "sslcertmode": _CERTIFICATE,
    "sslcrl": "it names a file of this machine",
    "sslcrldir": "it names a folder of this machine",
    "sslkeylogfile": "it writes the keys of the connection to a file",
    "requirepeer": "it is about sockets of this machine; write a host",
    "gsslib": "Kerberos is not supported",
    "krbsrvname": "Kerberos is not supported",
    "gssdelegation": "Kerberos is not supported",
    "replication": "tables are read by SELECT and COPY",
}
NEUTRAL = dict.fromkeys(
    "options passfile hostaddr sslcert sslkey sslrootcert sslcrl sslcrldir requirepeer gsslib krbsrvname".split(), ""
) | {"host": "localhost"}
"""Options for libpq that the DSN leaves out: it would read the environment (PGOPTIONS and so on) otherwise, and
for a host the folder of sockets that it was built with, where any user of the machine may listen."""
_SCHEMES = ("postgresql://", "postgres://")
_KEY = re.compile(r"[a-z_]+\Z")
_PASSWORD_WORD = re.compile(r"(?i)\b(\w*(?:password|secret))(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)")
_PASSWORD_IN_URL = re.compile(r"(://[^\s:/@]*):[^\s/]*@")


class Dsn:
    """The parameters of a connection. Its text, its repr and its pickle do not show a password.

    The pickle is packed, not encrypted: it goes to tasks that must connect, and whoever holds it can unpack it.
    """

    __slots__ = ("_parameters",)

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = dict(parameters)

    @property
    def place(self) -> str:
        """User, host and database, for people to read."""
        known = self._parameters
        user = f"{known['user']}@" if known.get("user") else ""
        port = f":{known['port']}" if known.get("port") else ""
        return f"{user}{known.get('host') or 'localhost'}{port}/{known.get('dbname', '')}"

    def trusting(self, ca_file: str) -> Dsn:
        """The same connection, to a server whose certificate one of these authorities signed."""
        return Dsn({**self._parameters, "sslrootcert": ca_file})

    def conninfo(self, **defaults: str) -> str:
        """What libpq takes, password included: for the driver and for nobody else."""
        merged = {**defaults, **self._parameters}
        return " ".join(f"{key}={_quoted(value)}" for key, value in merged.items())

    def redacted(self, text: str) -> str:
        """The text without the password, in whichever form it stands there."""
        for form in sorted(self._secret_forms(), key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        text = _PASSWORD_IN_URL.sub(rf"\1:{HIDDEN}@", text)
        return _PASSWORD_WORD.sub(rf"\1\2{HIDDEN}", text)

    def _secret_forms(self) -> set[str]:
        secrets = [self._parameters[key] for key in _SECRETS if self._parameters.get(key)]
        forms = (
            (one, quote(one, safe=""), quote(one), quote(one, safe="").lower(), _quoted(one)[1:-1]) for one in secrets
        )
        return {form for each in forms for form in each}

    def __repr__(self) -> str:
        return f"Dsn({self.place})"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dsn) and other._parameters == self._parameters

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._parameters.items())))

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return _unpacked, (base64.b85encode(zlib.compress(json.dumps(self._parameters).encode())),)


def _unpacked(packed: bytes) -> Dsn:
    return Dsn(json.loads(zlib.decompress(base64.b85decode(packed))))


def parse_dsn(text: str, came_from: str) -> Dsn:
    """Read a DSN, or raise `Misconfigured` that names where it came from and shows nothing of it."""
    text = text.strip()
    if not text:
        _refuse(came_from, "is empty")
    if text.startswith(_SCHEMES):
        return Dsn(_checked(_of_url(text, came_from), came_from))
    if "://" in text.partition("=")[0]:
        _refuse(came_from, "is an address of something else")
    return Dsn(_checked(_of_words(text, came_from), came_from))


def _checked(options: Iterable[tuple[str, str]], came_from: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in options:
        if key in found:
            # The name of an option that nobody knows is not shown: it may be a part of a password.
            _refuse(came_from, f"has {key if key in _TAKEN else 'an option'} twice")
        found[key] = value
    for key in found:
        if key not in _TAKEN:
            _refuse_option(came_from, key if key in _REFUSED else None)
    if any(host.startswith(("/", "@")) for host in found.get("host", "").split(",")):
        _refuse_option(came_from, "host", "a path as host is a socket of this machine; write localhost")
    if found.get("sslrootcert", "system") != "system":
        _refuse_option(came_from, "sslrootcert", "it names a file; write ca_file below [sources.<name>]")
    return found


def _of_url(text: str, came_from: str) -> Iterator[tuple[str, str]]:
    rest = text.partition("://")[2]
    head, at, after = rest.partition("@")
    user_info, rest = (head, after) if at and "/" not in head else ("", rest)
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    path, _, query = rest[len(authority) :].partition("?")
    user, colon, password = user_info.partition(":")
    hosts, ports = [], []
    for one in authority.split(","):
        found = re.fullmatch(r"(\[[^\]]*\]|[^:@]*)(?::([0-9]*))?", one)
        if not found:
            _refuse(came_from, "has a host or a port that cannot be one")
        hosts.append(found[1].strip("[]"))
        ports.append(found[2] or "")
    options = [
        ("user", user),
        *([("password", password)] if colon else []),
        ("host", ",".join(hosts)),
        ("port", ",".join(ports) if any(ports) else ""),
        ("dbname", path.lstrip("/")),
    ]
    for word in filter(None, query.split("&")):
        key, equals, value = word.partition("=")
        if not equals or not _KEY.match(key):
            _refuse(came_from, "has a parameter after the ? that is not key=value")
        options.append((key, value))
    for key, value in options:
        if value:
            yield key, _decoded(value, came_from)


def _decoded(value: str, came_from: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", value):
        _refuse(came_from, "has a % that is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        _refuse(came_from, "is not UTF-8 when percent-decoded")


_WORD = re.compile(r"\s*([^\s=]+)\s*=\s*('(?:[^'\\]|\\.)*'(?=\s|\Z)|(?!')(?:[^\s\\]|\\.)*)", re.DOTALL)


def _of_words(text: str, came_from: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _WORD.match(text, at)
        if not found or not _KEY.match(found[1]):
            _refuse(came_from, "is neither a postgresql:// address nor words of the form key=value")
        value = found[2][1:-1] if found[2].startswith("'") else found[2]
        yield found[1], re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
        at = found.end()


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _refuse_option(came_from: str, key: str | None, why: str | None = None) -> NoReturn:
    raise Misconfigured(
        f"the DSN in {came_from} has {f'the option {key}' if key else 'an option'} that is not taken",
        code="dsn_option",
        hint=f"{key}: {why or _REFUSED[key]}" if key else f"the options are {', '.join(_TAKEN)}",
    )


def _refuse(came_from: str, why: str) -> NoReturn:
    raise Misconfigured(
        f"the DSN in {came_from} {why}",
        code="bad_dsn",
        hint="write postgresql://user:password@host:5432/database with @ : / ? # % of the password percent-encoded "
        "(%40 %3A %2F %3F %23 %25), or host=… user=… password='…' dbname=…",
    )
