"""Which metadata file was the last: after deaths between write and swap, lost races, and going on after either."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException

from frazil.events import sequence_of
from frazil.lake.catalog import Lake, LakeTable, changed_by, open_lake
from frazil.lake.commit import publish_stage
from frazil.lake.recovery import repair_catalog, restate_watermark
from frazil.lake.recovery.metadata_candidates import MetadataCandidate
from frazil.storage import Warehouse
from tests.lake.staging import append, rows, stage, start_of_next
from tests.lake.swaps import between_write_and_swap, dying_before_the_swap
from tests.lake.test_catalog_rebuild import lose_catalog, make, values


@contextmanager
def new_lake() -> Iterator[Lake]:
    with tempfile.TemporaryDirectory(prefix="frazil-states-") as folder:
        lake = open_lake(f"sqlite:///{folder}/catalog.db", Warehouse(f"file://{folder}/warehouse"))
        yield lake
        lake.close()


class Committers:
    """Commits of a stream whose n-th message holds the row n, so that a watermark says which rows there must be."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.name = make(lake).name
        self.columns = 0

    @property
    def table(self) -> LakeTable:
        return self.lake.table(self.name)

    def commit(self) -> None:
        append(self.lake, self.name, [{"v": sequence_of(self.table.watermark)}])

    def stage_only(self) -> None:
        base = self.table
        stage(self.lake, base, rows(base, [{"v": sequence_of(base.watermark)}]), start_of_next(base))

    def die_publishing(self) -> None:
        base = self.table
        snapshot = stage(self.lake, base, rows(base, [{"v": sequence_of(base.watermark)}]), start_of_next(base))
        with dying_before_the_swap():
            publish_stage(self.lake, base, snapshot, start_of_next(base))

    def alter(self) -> None:
        self.columns += 1
        self.lake.alter(self.name, changed_by({"add_columns": {f"c{self.columns}": "string"}}))

    def die_altering(self) -> None:
        with dying_before_the_swap():
            self.alter()

    def lose_a_race(self) -> None:
        """A publish that an alteration overtakes between its metadata file and its swap."""
        base = self.table
        snapshot = stage(self.lake, base, rows(base, [{"v": sequence_of(base.watermark)}]), start_of_next(base))
        with between_write_and_swap(self.alter):
            publish_stage(self.lake, base, snapshot, start_of_next(base))

    def lose_an_alteration(self) -> None:
        """An alteration that a publish overtakes, and that is not tried again."""
        self.columns += 1
        iceberg = self.lake.catalog.load_table(self.name)
        iceberg.metadata.properties["commit.retry.num-retries"] = "0"
        transaction = iceberg.transaction().set_properties({"mine": str(self.columns)})
        with between_write_and_swap(self.commit), pytest.raises(CommitFailedException):
            transaction.commit_transaction()

    def tag(self) -> None:
        if self.table.snapshot_id is not None:
            self.lake.catalog.load_table(self.name).manage_snapshots().create_tag(
                self.table.snapshot_id, f"t{self.table.metadata_location[-20:-14]}"
            ).commit()

    def holds_what_its_watermark_says(self) -> None:
        table = self.table
        assert sorted(values(table)) == list(range(1, sequence_of(table.watermark)))


ACTIONS = ("commit stage_only die_publishing alter die_altering lose_a_race lose_an_alteration tag").split()


@given(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=12))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_the_last_state_is_found_or_one_that_had_no_answer_yet(actions: list[str]) -> None:
    with new_lake() as lake:
        committers = Committers(lake)
        for action in actions:
            getattr(committers, action)()
        truth = committers.table
        lose_catalog(lake)
        (told,) = repair_catalog(lake)
        found = committers.table

        assert told.state == "registered" and told.metadata == found.metadata_location
        assert found.watermark >= truth.watermark, "the bus may be trimmed up to there"
        chosen = MetadataCandidate(found.metadata_location, found.iceberg.metadata)
        current = MetadataCandidate(truth.metadata_location, truth.iceberg.metadata)
        unanswered = chosen.log[-1:] == [current.file]
        rival = truth.metadata_location in told.rivals and chosen.log == current.log
        assert chosen.file == current.file or unanswered or rival
        committers.holds_what_its_watermark_says()
        committers.commit()
        committers.commit()
        committers.holds_what_its_watermark_says()
        assert not committers.table.iceberg.metadata.properties.get("mine") or unanswered or rival


def test_a_commit_that_never_swapped_is_over_once_the_table_went_on(lake: Lake) -> None:
    """Its watermark is higher, but a chain went past its number: it was never current, and nobody trimmed the bus."""
    committers = Committers(lake)
    committers.commit()
    committers.die_publishing()
    committers.alter()
    committers.alter()
    last = committers.table.metadata_location
    lose_catalog(lake)
    (told,) = repair_catalog(lake)
    assert told.metadata == last and told.rivals == ()


def test_of_two_ends_the_higher_watermark_is_taken_and_the_other_told(lake: Lake) -> None:
    committers = Committers(lake)
    committers.commit()
    committers.die_publishing()
    committers.alter()
    overtaken = committers.table
    lose_catalog(lake)
    (told,) = repair_catalog(lake)
    assert told.watermark == start_of_next(overtaken)
    assert told.rivals == (overtaken.metadata_location,)


def test_an_old_file_that_nobody_deleted_is_not_taken(lake: Lake) -> None:
    committers = Committers(lake)
    committers.commit()
    old = Path(committers.table.metadata_location.removeprefix("file://"))
    kept = old.read_bytes()
    for _ in range(15):
        committers.commit()
    assert all(entry.metadata_file != str(old) for entry in committers.table.iceberg.metadata.metadata_log)
    old.write_bytes(kept)
    last = committers.table.metadata_location
    lose_catalog(lake)
    (told,) = repair_catalog(lake)
    assert told.metadata == last and told.rivals == ()


def test_a_watermark_that_a_person_lowered_stays_lowered(lake: Lake) -> None:
    committers = Committers(lake)
    committers.commit()
    first = committers.table.snapshot_id
    committers.commit()
    high = committers.table.watermark
    assert first is not None
    lake.catalog.load_table(committers.name).manage_snapshots().set_current_snapshot(first).commit()
    mended, watermark = restate_watermark(lake, committers.name)
    assert watermark < high
    lose_catalog(lake)
    (told,) = repair_catalog(lake)
    assert told.metadata == mended.metadata_location
