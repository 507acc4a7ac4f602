"""The two tables as a log of events in a file: what a vault needs of entity tables, decoded as the gateway decodes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil.client import NDJSON, event_batches
from frazil.events.declaration import parse_table
from frazil.events.decoding import Limits, decode_events
from frazil.vault.columns import LINK_COLUMNS, LINKS_KEY, NOTE_COLUMNS, NOTES_KEY
from frazil.vault.note_changes import Key
from frazil.vault.sync import Which

KEYS = {"notes": NOTES_KEY, "links": LINKS_KEY}


class LogTables:
    """Every event once by its id, in order; `rows` are the newest versions, without what was deleted."""

    def __init__(self, folder: Path, further: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.columns = {"notes": {**NOTE_COLUMNS, **(further or {})}, "links": LINK_COLUMNS}
        self.repeated = 0

    def events(self, which: str) -> list[dict[str, Any]]:
        file = self.folder / f"{which}.ndjson"
        return [json.loads(line) for line in file.read_text().split("\n") if line] if file.exists() else []

    def publish(self, which: Which, events: Sequence[Mapping[str, Any]]) -> str:
        known = {event["id"]: event for event in self.events(which)}
        with (self.folder / f"{which}.ndjson").open("a") as file:
            for body, *_ in event_batches(events):
                for event in map(json.loads, body.splitlines()):
                    self._decoded(which, event)
                    if event["id"] in known:
                        assert known[event["id"]] == event, "the same id with another body"
                        self.repeated += 1
                    else:
                        file.write(json.dumps(event) + "\n")
                        known[event["id"]] = event
            file.flush()
            os.fsync(file.fileno())
        return f"{which}-{len(known)}"

    def newest(self, which: str, vault: str) -> dict[Key, dict[str, Any]]:
        found: dict[Key, dict[str, Any]] = {}
        for event in self.events(which):
            key = tuple(event["data"][column] for column in KEYS[which])
            if key[0] == vault:
                found[key] = event
        return found

    def versions(self, which: Which, vault: str) -> Mapping[Key, str]:
        return {key: event["id"] for key, event in self.newest(which, vault).items() if event["op"] == "upsert"}

    def graves(self, which: Which, vault: str) -> Mapping[Key, str]:
        deleted = [event for event in self.events(which) if event["op"] == "delete" and event["data"]["vault"] == vault]
        return {tuple(event["data"][column] for column in KEYS[which]): event["id"] for event in deleted}

    def rows(self, which: str, vault: str) -> list[dict[str, Any]]:
        """As an answer of SQL has them."""
        found = [event for event in self.newest(which, vault).values() if event["op"] == "upsert"]
        return sorted((self._decoded(which, event) for event in found), key=lambda row: row["path"])

    def _decoded(self, which: str, event: Mapping[str, Any]) -> dict[str, Any]:
        spec = parse_table({"name": which, "columns": self.columns[which]})
        body = json.dumps({"id": event["id"], "data": event["data"]}).encode()
        decoded = decode_events(body, NDJSON, spec, received_at=datetime.now(UTC), limits=Limits())
        rows: list[dict[str, Any]] = decoded.batch.to_pylist()
        return {name: value for name, value in rows[0].items() if not name.startswith("_")}
