"""Embedding with tasks of a real Spark, and what compaction and folds by Spark mean for which rows are new."""

from __future__ import annotations

import pytest

from frazil.lake.derived import embedded_up_to, embeddings_table
from frazil.pipeline.embeddings import EmbeddingJobs
from frazil.pipeline.jobs import SparkTasks
from tests.lake_fixtures import SparkLake
from tests.pipeline.embeddings.place import Place, chunk_names


class SparkPlace(Place):
    def __init__(self, spark: SparkLake, *, piece_rows: int | None = None) -> None:
        super().__init__(spark.lake, piece_rows=piece_rows)
        self._spark = spark

    @property
    def job(self) -> EmbeddingJobs:
        return EmbeddingJobs(self.lake, SparkTasks(self._spark.session), self.models, piece_rows=self.piece_rows)

    def compact(self, name: str) -> None:
        options = "options => map('rewrite-all', 'true')"
        self._spark.session.sql(f"CALL frazil.system.rewrite_data_files(table => '{name}', {options})").collect()


@pytest.mark.slow
@pytest.mark.spark
def test_only_rows_that_came_since_are_embedded_whatever_was_compacted(spark_lake: SparkLake) -> None:
    place = SparkPlace(spark_lake, piece_rows=30)
    place.declare(name="spark_notes")
    name = "main.spark_notes"
    for start in range(0, 100, 20):
        place.add([{"_id": f"n{n:03}", "body": f"Text {n}."} for n in range(start, start + 20)], name)
    told = place.embed("spark_notes")
    assert (told["rows"], told["embedded"], told["published"]) == (100, 100, 3)
    place.compact(name)
    moved = place.embed("spark_notes")
    assert (moved["embedded"], moved["known"]) == (0, moved["rows"]), "what only moved has its vectors"
    place.add([{"_id": f"n{n:03}", "body": f"Text {n}."} for n in range(100, 110)], name)
    place.compact(name)
    place.add([{"_id": f"n{n:03}", "body": f"Text {n % 110}."} for n in range(110, 120)], name)
    told = place.embed("spark_notes")
    assert (told["embedded"], told["reused"]) == (10, 10)
    place.compact("main.spark_notes__embeddings")
    place.add([{"_id": "n120", "body": "Text 7."}, {"_id": "n121", "body": "Text 121."}], name)
    told = place.embed("spark_notes")
    assert (told["rows"], told["embedded"], told["reused"]) == (2, 1, 1), "vectors are found where compaction put them"
    rows = place.vectors(name)
    names = chunk_names(rows)
    assert len(names) == len(set(names)) == 122
    by_document = {row["document"]: row["vector"] for row in rows}
    assert by_document["n120"] == by_document["n007"] == by_document["n117"] != by_document["n121"]
    state = embedded_up_to(embeddings_table(place.lake, name), "wordllama")
    assert state is not None and state.snapshot_id == place.lake.table(name).snapshot_id
