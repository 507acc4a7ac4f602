"""Iceberg schema of a declaration: field ids, partition spec, and the properties of every table."""

from __future__ import annotations

from itertools import count
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from frazil.events.declaration import EXTRA, PATCH, ColumnType, Partition, TableSpec

_PLAIN: dict[str, IcebergType] = {
    "string": StringType(),
    "json": StringType(),
    "bool": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "binary": BinaryType(),
}
_TIME: dict[str, Transform[Any, Any]] = {"day": DayTransform(), "hour": HourTransform(), "month": MonthTransform()}

FANOUT = "write.spark.fanout.enabled"
TABLE_PROPERTIES = {
    "format-version": "2",
    # The commit is write-audit-publish: Spark stages, one compare-and-swap publishes.
    "write.wap.enabled": "true",
    # A compaction that met a commit tries again: what it wrote stays right, only its commit is repeated. Appends are
    # staged, and a stage that was put on another parent is not published; without that rule, retries inside the library
    # let two racing writers double 400 rows.
    "commit.retry.num-retries": "10",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "200",
    "commit.retry.total-timeout-ms": "10000",
    # One small file per partition and commit, without a shuffle; one after the other, because an open one takes a
    # megabyte of the heap and more. A commit to a few partitions says otherwise for itself.
    "write.distribution-mode": "none",
    FANOUT: "false",
    "write.parquet.compression-codec": "zstd",
    # Each commit writes a whole metadata file; the old ones are of no use beyond a reader's patience.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


BASE_PROPERTIES = {
    # Readers of every engine see plain rows: no delete files, and least of all equality deletes.
    "write.merge.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.delete.mode": "copy-on-write",
}


def iceberg_type(declared: ColumnType, ids: count[int]) -> IcebergType:
    """The Iceberg type, nested fields numbered from `ids` (Iceberg assigns the final numbers itself)."""
    if declared.kind == "decimal":
        return DecimalType(declared.precision, declared.scale)
    if declared.kind == "list":
        return ListType(next(ids), iceberg_type(declared.children[0][1], ids), element_required=False)
    if declared.kind == "map":
        key, value = (child for _, child in declared.children)
        return MapType(next(ids), iceberg_type(key, ids), next(ids), iceberg_type(value, ids), value_required=False)
    if declared.kind == "struct":
        return StructType(
            *(NestedField(next(ids), name, iceberg_type(child, ids)) for name, child in declared.children)
        )
    return _PLAIN[declared.kind]


def iceberg_schema(spec: TableSpec) -> Schema:
    ids = count(1)
    fields = _system_fields(ids, spec) if spec.is_streamed else []
    for name, column in spec.columns.items():
        fields.append(NestedField(next(ids), name, iceberg_type(column.type, ids), doc=column.description or None))
    if spec.unknown_fields == "keep":
        fields.append(NestedField(next(ids), EXTRA, StringType(), doc="fields that no column was declared for"))
    if spec.kind == "history":
        names = ListType(next(ids), StringType(), element_required=False)
        fields.append(NestedField(next(ids), PATCH, names, doc="the fields that a patch gave"))
    return Schema(*fields)


def evolve(transaction: Transaction, old: TableSpec, new: TableSpec) -> None:
    """Add the columns that are new, widen those whose type is."""
    if new.columns == old.columns:
        return
    with transaction.update_schema() as update:
        for column, declared in new.columns.items():
            wanted = iceberg_type(declared.type, count(1))
            if column not in old.columns:
                update.add_column(column, wanted, doc=declared.description or None)
            elif declared.type != old.columns[column].type:
                update.update_column(column, field_type=wanted)


def _system_fields(ids: count[int], spec: TableSpec) -> list[NestedField]:
    given = spec.kind != "entity"  # Spark cannot know that what it merges from an aggregation is never null
    return [
        NestedField(next(ids), "_seq", LongType(), required=given, doc="position in the stream"),
        NestedField(next(ids), "_id", StringType(), required=given, doc="event id"),
        NestedField(next(ids), "_op", StringType(), required=given, doc="what the event does"),
        NestedField(next(ids), "_ts", TimestamptzType(), required=given, doc="when it happened"),
        NestedField(next(ids), "_received_at", TimestamptzType(), required=given, doc="when it was received"),
        NestedField(next(ids), "_actor", StringType(), doc="who did it"),
        NestedField(next(ids), "_source", StringType(), doc="which system sent it"),
        NestedField(next(ids), "_workspace", StringType(), doc="which workspace it belongs to"),
    ]


def partition_spec(spec: TableSpec, schema: Schema) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(part.column).field_id, 1000 + i, _transform(part), _field_name(part))
            for i, part in enumerate(spec.partition)
        )
    )


def _transform(part: Partition) -> Transform[Any, Any]:
    if part.transform == "bucket":
        return BucketTransform(part.buckets)
    return _TIME.get(part.transform, IdentityTransform())


def _field_name(part: Partition) -> str:
    return part.column if part.transform == "identity" else f"{part.column}_{part.transform}"
