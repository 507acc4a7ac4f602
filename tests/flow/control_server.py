"""Control server: an HTTP server on loopback that does the same small work for each request, and has nothing to do with
the product. How much slower it answers than before is how much slower the machine has become.

`python -m tests.flow.control_server PORT` says `ready`, and ends with its input.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import PIPE, Popen

from tests.ports import free_port

_ROUNDS = 60_000
"""Some tens of milliseconds of a processor: a shorter task is done before it has to share one, and does not show that
all are in use."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        digest = b""
        for _ in range(_ROUNDS):
            digest = hashlib.blake2b(digest).digest()
        # In one piece: two would wait for each other on the way.
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(digest)}\r\n\r\n"
        self.wfile.write(head.encode() + digest)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def control_server() -> Iterator[str]:
    """The address of a control server in a process of its own."""
    port = free_port()
    words = [sys.executable, "-m", "tests.flow.control_server", str(port)]
    with Popen(words, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
