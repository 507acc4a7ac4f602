"""A small SMTP server on loopback that keeps what it is sent; with a certificate and a password, where it is given."""

from __future__ import annotations

import socketserver
import ssl
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path


@dataclass(frozen=True)
class Guard:
    """What a server wants of its clients: encryption, from the first word on or by STARTTLS, and to know who it is."""

    certificate: Path
    user: str
    password: str
    from_the_start: bool = False


class Mailbox(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, guard: Guard | None = None, *, refuses: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.guard = guard
        self.refuses = refuses
        """An address that it takes no mail for."""
        self.messages: list[EmailMessage] = []
        self.in_the_clear: list[bytes] = []
        """Every line that came without encryption."""
        self.signed_in: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not like the certificate hangs up; that is its right."""


class _Conversation(socketserver.StreamRequestHandler):
    """As much of RFC 5321, 3207 and 4954 as the client needs."""

    server: Mailbox
    timeout = 30

    def handle(self) -> None:
        guard = self.server.guard
        self._encrypted = self._known = False
        if guard is not None and guard.from_the_start:
            self._encrypt(guard)
        self._say("220 mailbox")
        while line := self.rfile.readline(1000):
            if not self._encrypted:
                self.server.in_the_clear.append(line)
            if self._answered(line, guard):
                return

    def _answered(self, line: bytes, guard: Guard | None) -> bool:
        """Whether that was the last word."""
        verb, _, rest = line.strip().partition(b" ")
        match verb.upper():
            case b"EHLO":
                more = [] if guard is None else ["AUTH PLAIN"] if self._encrypted else ["STARTTLS"]
                for word in ("mailbox", *more):
                    self._say(f"250-{word}")
                self._say("250 8BITMIME")
            case b"STARTTLS" if guard is not None:
                self._say("220 go on")
                self._encrypt(guard)
            case b"AUTH" if guard is not None:
                _, user, password = b64decode(rest.partition(b" ")[2]).decode().split("\0")
                self._known = (user, password) == (guard.user, guard.password)
                self.server.signed_in += [user] if self._known else []
                self._say("235 welcome" if self._known else f"535 {password} is not the password")
            case b"MAIL" if guard is not None and not self._known:
                self._say("530 who are you?")
            case b"RCPT" if self.server.refuses and self.server.refuses.encode() in rest:
                self._say("550 no such user")
            case b"DATA":
                self._say("354 go on")
                self._keep()
                self._say("250 kept")
            case b"QUIT":
                self._say("221 bye")
                return True
            case _:
                self._say("250 ok")
        return False

    def _encrypt(self, guard: Guard) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(guard.certificate)
        self.request = self.connection = context.wrap_socket(self.request, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self._encrypted = True

    def _keep(self) -> None:
        lines: list[bytes] = []
        while (line := self.rfile.readline(100_000)) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        message = message_from_bytes(b"".join(lines), policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.server.messages.append(message)

    def _say(self, words: str) -> None:
        self.wfile.write(words.encode() + b"\r\n")


@contextmanager
def running_mailbox(guard: Guard | None = None, *, refuses: str = "") -> Iterator[Mailbox]:
    with Mailbox(guard, refuses=refuses) as mailbox:
        thread = threading.Thread(target=mailbox.serve_forever, daemon=True)
        thread.start()
        try:
            yield mailbox
        finally:
            mailbox.shutdown()
            thread.join(30)


def certificate(folder: Path, name: str = "127.0.0.1") -> Path:
    """A certificate that vouches for itself, with its key, in one file."""
    path = folder / f"{name}.pem"
    key = folder / f"{name}.key"
    kind = "IP" if name[0].isdigit() else "DNS"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{name}"),
            *("-keyout", str(key), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    path.write_text(path.read_text() + key.read_text())
    return path
