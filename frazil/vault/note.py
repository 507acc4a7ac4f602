"""Note: one Markdown file, parsed into the columns of the tables."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frazil.events.declaration import ColumnType
from frazil.vault.columns import NotAValue, fitted, keys_by_column
from frazil.vault.front_matter import BadFrontMatter, load, split
from frazil.vault.links import VaultIndex
from frazil.vault.markdown import LINE_BREAK, NoteContents, NoteLink, read

BOM = "\ufeff"
CREATED_KEYS = ("created", "date")
UPDATED_KEYS = ("updated", "modified")
TAGS_KEYS = ("tags", "tag")
ALIASES_KEYS = ("aliases", "alias")
Row = dict[str, Any]


@dataclass(frozen=True)
class Note:
    """`front_matter_text` and `body`, after the byte order mark where there is one, are the exact text of the file."""

    path: str
    title: str
    body: str
    front_matter: Mapping[str, Any] | None
    front_matter_text: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    contents: NoteContents
    created: datetime | None
    updated: datetime | None
    content_hash: str
    size: int
    has_bom: bool
    further: Mapping[str, Any]
    """Columns that were declared for front matter."""
    warnings: tuple[str, ...]

    def row(self, vault: str) -> Row:
        """The row of the table of notes."""
        return {
            "vault": vault,
            "path": self.path,
            "title": self.title,
            "body": self.body,
            "front_matter": self.front_matter,
            "front_matter_text": self.front_matter_text,
            "tags": list(self.tags),
            "aliases": list(self.aliases),
            "headings": [vars(heading) for heading in self.contents.headings],
            "created": self.created,
            "updated": self.updated,
            "content_hash": self.content_hash,
            "size": self.size,
            "has_bom": self.has_bom,
            **self.further,
        }

    def link_rows(self, vault: str, index: VaultIndex) -> Iterator[Row]:
        """The rows of the table of links, numbered from 1 in the order of the text."""
        for position, link in enumerate(self.contents.links, start=1):
            yield _link_row(vault, self.path, position, link, index.resolve(self.path, link))


def parse(path: str, raw: bytes, further: Mapping[str, ColumnType]) -> Note:
    """The note in these bytes. Front matter that cannot be read is a warning; bytes that are not UTF-8 an error."""
    text = raw.decode("utf-8")
    has_bom = text.startswith(BOM)
    block, body = split(text.removeprefix(BOM))
    warnings: list[str] = []
    front_matter: dict[str, Any] | None = None
    if block:
        try:
            front_matter = load(block)
        except BadFrontMatter as error:
            warnings.append(f"its front matter is kept as text only: {error}")
    contents = read(body, first_line=1 + len(LINE_BREAK.findall(block)))
    fields = _FrontMatterFields(front_matter or {}, warnings)
    return Note(
        path=path,
        title=fields.text("title") or _derived_title(path, contents),
        body=body,
        front_matter=front_matter,
        front_matter_text=block,
        tags=tuple(dict.fromkeys((*fields.tags(), *contents.tags))),
        aliases=tuple(dict.fromkeys(fields.aliases())),
        contents=contents,
        created=fields.moment(CREATED_KEYS),
        updated=fields.moment(UPDATED_KEYS),
        content_hash=hashlib.sha256(raw).hexdigest(),
        size=len(raw),
        has_bom=has_bom,
        further=fields.columns(further),
        warnings=tuple(warnings),
    )


def _derived_title(path: str, contents: NoteContents) -> str:
    first = next((heading.text for heading in contents.headings if heading.level == 1 and heading.text), None)
    return first or posixpath.basename(path).rpartition(".")[0]


def _link_row(vault: str, path: str, position: int, link: NoteLink, target_path: str | None) -> Row:
    return {
        "vault": vault,
        "path": path,
        "position": position,
        "kind": link.kind,
        "target": link.target,
        "target_path": target_path,
        "anchor": link.anchor,
        "display": link.display,
        "line": link.line,
    }


@dataclass(frozen=True)
class _FrontMatterFields:
    """What front matter says under the keys that mean something; what does not fit becomes a warning."""

    values: Mapping[str, Any]
    warnings: list[str]

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return None
        return str(value).strip() or None

    def tags(self) -> Iterator[str]:
        for tag in self._texts(TAGS_KEYS, r"[,\s]+"):
            if name := tag.lstrip("#").strip():
                yield name

    def aliases(self) -> list[str]:
        return self._texts(ALIASES_KEYS, ",")

    def _texts(self, keys: tuple[str, ...], apart: str) -> list[str]:
        value = next((self.values[key] for key in keys if self.values.get(key) is not None), None)
        items = re.split(apart, value) if isinstance(value, str) else value if isinstance(value, list) else [value]
        texts = [str(item).strip() for item in items if isinstance(item, str | int | float)]
        return [text for text in texts if text]

    def moment(self, keys: tuple[str, ...]) -> datetime | None:
        key = next((key for key in keys if self.values.get(key) is not None), None)
        return None if key is None else self._fitted(key, ColumnType("timestamp"))

    def columns(self, further: Mapping[str, ColumnType]) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(further)
        for column, (key, *others) in keys_by_column(further, self.values).items():
            found[column] = self._fitted(key, further[column])
            differing = [other for other in others if self.values[other] != self.values[key]]
            self.warnings.extend(
                f"its {other[:60]!r} is in front_matter only: {key[:60]!r} fills the column {column}"
                for other in differing
            )
        return found

    def _fitted(self, key: str, kind: ColumnType) -> Any:
        try:
            return fitted(kind, self.values[key])
        except NotAValue as error:
            self.warnings.append(f"its {key[:60]!r} is not taken as a {kind}: {error}")
            return None
