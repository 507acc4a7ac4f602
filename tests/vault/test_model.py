"""Random edits, with runs that break off anywhere in between: the tables end as the folder is, each event once."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Unavailable
from frazil.vault import VaultSync
from frazil.vault.export import export_notes
from frazil.vault.sync import Which
from tests.vault.log_tables import LogTables
from tests.vault.vaults import contents, write

NAMES = ["a.md", "b.md", "d/a.md", "d/c.md"]
TEXTS = ["", "# A\n[[a]] [[c]]", "# B\n[[b]]", "---\nx: 1\n---\n[[d/a]] [[a]] [[b]]"]


class Breaking(LogTables):
    """Takes `left` more events, then the connection breaks."""

    left = 1_000_000

    def publish(self, which: Which, events: Sequence[Mapping[str, Any]]) -> str:
        taken = events[: self.left]
        self.left -= len(taken)
        token = super().publish(which, taken) if taken else ""
        if len(taken) < len(events):
            raise Unavailable("the connection broke")
        return token


def links(tables: LogTables) -> dict[tuple[str, int], str | None]:
    return {(row["path"], row["position"]): row["target_path"] for row in tables.rows("links", "v")}


_edits = st.tuples(st.just("write"), st.sampled_from(NAMES), st.sampled_from(TEXTS))
_deletes = st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(""))
_runs = st.tuples(st.just("run"), st.integers(0, 6).map(str), st.just(""))


@settings(max_examples=60)
@given(st.lists(_edits | _deletes | _runs, max_size=25))
def test_the_tables_end_as_the_folder_is(steps: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        vault, tables = Path(folder, "vault"), Breaking(Path(folder))
        vault.mkdir()
        for what, name, text in steps:
            if what == "write":
                write(vault, {name: text})
            elif what == "delete":
                (vault / name).unlink(missing_ok=True)
            else:
                tables.left = int(name)
                try:
                    VaultSync(vault, "v", tables).run(allow_empty=True)
                except Unavailable:
                    continue
        tables.left = 1_000_000
        VaultSync(vault, "v", tables).run(allow_empty=True)
        assert VaultSync(vault, "v", tables).run(allow_empty=True).published == 0
        export_notes(tables.rows("notes", "v"), Path(folder, "out"), "v", {})
        assert contents(Path(folder, "out")) == contents(vault)
        (afresh := Path(folder, "afresh")).mkdir()
        VaultSync(vault, "v", LogTables(afresh)).run()
        assert links(tables) == links(LogTables(afresh)) and tables.repeated == 0
