"""Files of a text index: those of the engine, and `text.json`, written last, with the hash of each."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tantivy

from frazil.errors import DataLoss
from frazil.serving.text.damage import damaged, engine_trouble
from frazil.serving.text.layout import ORDINAL, TextLayout, stem_field, word_field
from frazil.serving.text.text_index import TextIndex

DESCRIPTION = "text.json"
FORMAT = 1
# Large enough that some hundred thousand chunks become one segment, which is searched fastest.
_WRITER_BYTES = 256_000_000
# Only a writer needs it. Readers touch the other lock, which stays, so that opening an index adds no file to it.
_WRITER_LOCK = ".tantivy-writer.lock"


@dataclass(frozen=True)
class TextReport:
    rows: int
    seconds: float
    bytes: int
    files: tuple[str, ...]


def build(layout: TextLayout, documents: Iterable[Mapping[str, str | None]], folder: Path) -> TextReport:
    """Index these documents into an existing empty folder; the i-th one gets ordinal i.

    Columns that a document lacks, or has as None, are empty. Every document is in it: the count is checked.
    The caller makes the files durable.
    """
    begun = time.perf_counter()
    index = tantivy.Index(layout.schema(), str(folder), reuse=False)
    layout.teach(index)
    # A second thread takes as long: 2.0 and 2.4 s, and then there are two segments to search [100,000 sentences].
    writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)
    rows = 0
    for rows, document in enumerate(documents, start=1):
        writer.add_document(_fields(layout, rows - 1, document))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    if index.searcher().num_docs != rows:
        raise damaged(folder, f"{rows} documents went in, {index.searcher().num_docs} are indexed")
    (folder / _WRITER_LOCK).unlink(missing_ok=True)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    hashes = {name: _sha256(folder / name) for name in sizes}
    description = {
        "format": FORMAT,
        "engine": version("tantivy"),
        "rows": rows,
        "columns": layout.columns,
        "language": layout.language,
        "sha256": hashes,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")
    return TextReport(
        rows=rows,
        seconds=time.perf_counter() - begun,
        bytes=sum(sizes.values()),
        files=(*sizes, DESCRIPTION),
    )


def _fields(layout: TextLayout, ordinal: int, document: Mapping[str, str | None]) -> tantivy.Document:
    fields = tantivy.Document()
    fields.add_unsigned(ORDINAL, ordinal)
    for number, column in enumerate(layout.columns):
        if text := document.get(column):
            fields.add_text(stem_field(number), text)
            fields.add_text(word_field(number), text)
    return fields


def open_text(folder: Path) -> TextIndex:
    """Open what `build` wrote; raises `DataLoss` with code `text_damaged` when it is not that any more.

    Hashes are compared before the engine sees the files: some flipped bits make it panic, others answer wrongly.
    """
    description = _description(folder / DESCRIPTION)
    for name, written in description["sha256"].items():
        try:
            if _sha256(folder / name) != written:
                raise damaged(folder / name, "its content is not what was written")
        except FileNotFoundError as missing:
            raise damaged(folder / name, "it is missing") from missing
    layout = TextLayout(tuple(description["columns"]), description["language"])
    with engine_trouble(folder):
        index = tantivy.Index.open(str(folder))
        layout.teach(index)
        # Nothing is ever committed to it again: no thread has to watch for that.
        index.config_reader("manual")
        opened = TextIndex(index, layout, folder)
    if opened.rows != description["rows"]:
        raise damaged(folder, f"it holds {opened.rows} documents, not {description['rows']}")
    return opened


def _description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_bytes())
        if (
            description["format"] != FORMAT
            or not isinstance(description["rows"], int)
            or not isinstance(description["language"], str)
        ):
            raise damaged(path, "it is of another format")
        TextLayout(tuple(description["columns"]), description["language"])
        if not all("/" not in name for name in description["sha256"]):
            raise damaged(path, "it is of another format")
    except FileNotFoundError as missing:
        raise damaged(path, "it is missing") from missing
    except DataLoss:
        raise
    except Exception as wrong:
        raise damaged(path, "it is not what was written") from wrong
    described: dict[str, Any] = description
    return described


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
