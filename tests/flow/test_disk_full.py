"""The disk under the data directory fills up while producers run, and gets room again."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flow.checker import in_sqlite, read_rows, verdict
from tests.flow.producers import COLUMNS, Producers
from tests.flow.product import Product, eventually, new_folder, running

pytestmark = [pytest.mark.slow, pytest.mark.spark]
TABLES = ("clicks", "orders")
MEGABYTE = 1 << 20


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """A file system of its own, in memory."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take the last byte."""
    ballast = folder / "ballast"
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for block in (MEGABYTE, 4096, 1):
            while True:
                try:
                    os.write(descriptor, b"x" * block)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break
    finally:
        os.close(descriptor)
    return ballast


def test_a_full_disk_is_told_and_the_product_recovers_when_there_is_room_again() -> None:
    with new_folder("full") as folder, small_disk(folder / "data", megabytes=300) as data:
        product = Product(data, environment={"FRAZIL_MIN_FREE_BYTES": str(MEGABYTE)})
        logs = folder / "producers"
        with running(product):
            product.up()
            for table in TABLES:
                product.declare(table, COLUMNS)
            product.until_status("ok")
            with Producers(product.url, product.token, TABLES, logs, events_per_request=10) as producers:
                eventually(lambda: producers.acked() > 20, what="events on a disk with room")
                ballast = fill(data)
                eventually(
                    lambda: any(answer.status == 503 for answer in producers.answers()), what="an honest refusal"
                )
                told = product.until_status("degraded")
                assert told["reason"]
                product.kill(
                    "gateway"
                )  # what is started again now must come up on the full disk, or when there is room
                time.sleep(3)
                ballast.unlink()
                before = producers.acked()
                eventually(lambda: producers.acked() > before + 20, what="events after there was room again")
            assert product.is_up(), "the supervisor lives through it"
            product.until_status("ok")
            product.until_drained(*TABLES)
            locate = in_sqlite(data / "catalog.db")
            found = verdict(logs, {table: read_rows(locate, table) for table in TABLES})
            assert found.is_clean, str(found)
            refused = {status for status, _ in producers.statuses()} - {202}
            # 0: a part that could not write ended, and its connections with it.
            assert refused <= {503, 507, 0}, producers.statuses()
