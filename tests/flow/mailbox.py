"""A small SMTP server on loopback that keeps what it is sent."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage


class Mailbox(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.messages: list[EmailMessage] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Conversation(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as a client without encryption needs."""

    server: Mailbox
    timeout = 30

    def handle(self) -> None:
        self._say("220 mailbox")
        while line := self.rfile.readline(1000):
            verb = line.split(b" ")[0].strip().upper()
            if verb == b"DATA":
                self._say("354 go on")
                self._keep()
                self._say("250 kept")
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

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
def running_mailbox() -> Iterator[Mailbox]:
    with Mailbox() as mailbox:
        thread = threading.Thread(target=mailbox.serve_forever, daemon=True)
        thread.start()
        try:
            yield mailbox
        finally:
            mailbox.shutdown()
            thread.join(30)
