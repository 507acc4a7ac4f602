"""Every live read is right: while producers write, commits move rows, files are compacted and the pipeline dies."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.flow.product import ROOT, Product, eventually, new_folder, running
from tests.flow.readers import COLUMNS, Reader, Readers

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]

READS = 2500
MOVES = 5
"""How many commits must fall between two reads of each reader."""
SECONDS = 400.0
"""A bound against hanging on a busy machine."""


@contextmanager
def compacting(product: Product, log: Path) -> Iterator[None]:
    words = [f"sqlite:///{product.data}/catalog.db", f"file://{product.data}/warehouse", "main.series"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.flow.compactor", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
    try:
        yield
    finally:
        process.communicate(timeout=60)


def rewritten(log: Path) -> int:
    """How many files the compactor has replaced so far."""
    return sum(int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("rewrote"))


def test_reads_beside_commits_compaction_and_dying_pipelines() -> None:
    with new_folder("reads") as folder, running(Product(folder / "data")) as product:
        product.up()
        product.declare("series", COLUMNS)
        readers = Readers(product.url, product.token)
        # Spark is still starting: the first reads see nothing but the tail.
        readers.start()
        eventually(lambda: readers.reads >= 30, what="reads before the first commit")
        log = folder / "compactor.log"
        with compacting(product, log):
            product.until_part("pipeline", "ok")
            eventually(lambda: rewritten(log) > 0, what="a compaction", every=0.5)
            for _ in range(2):
                before = readers.reads
                product.kill("pipeline")
                eventually(lambda: readers.reads >= before + 50, what="reads without a pipeline")  # noqa: B023
                product.until_part("pipeline", "ok")

            def enough() -> bool:
                return readers.reads >= READS and all(reader.moved > MOVES for reader in readers.readers)

            eventually(enough, what=f"{READS} reads, with commits between them", seconds=SECONDS)
        readers.stop()
        product.until_drained("series")
        assert readers.wrong() == []
        assert all(reader.reads > 50 for reader in readers.readers)
        # In the end the snapshot alone has all that was promised, and nothing that was not sent.
        final = Reader(product.url, product.token, readers.writers, threading.Event(), freshness="committed")
        with httpx.Client(headers={"Authorization": f"Bearer {product.token}"}, timeout=60, trust_env=False) as http:
            final.read(http)
        assert final.reads == 1 and final.wrong == []
        for writer in readers.writers:
            assert writer.acked <= final.seen[writer.number] <= writer.sent
