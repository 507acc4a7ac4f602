"""CSV files: scan each into ranges, infer types from all of them, parse every range into rows and bad rows.

Nothing here knows Spark; a task calls `infer` or `parse` for one range, and all that travels can be pickled.
"""

from frazil.pipeline.csv.dialect import CsvOptions, Dialect
from frazil.pipeline.csv.infer import ColumnFacts, decide, infer
from frazil.pipeline.csv.names import clean_names, numbered
from frazil.pipeline.csv.parse import BAD_SCHEMA, LINE, Parsed, Refusal, TargetColumn, parse, unique_values
from frazil.pipeline.csv.ranges import CsvRange, FileMark
from frazil.pipeline.csv.scan import CsvFile, scan

__all__ = [
    "BAD_SCHEMA",
    "LINE",
    "ColumnFacts",
    "CsvFile",
    "CsvOptions",
    "CsvRange",
    "Dialect",
    "FileMark",
    "Parsed",
    "Refusal",
    "TargetColumn",
    "clean_names",
    "decide",
    "infer",
    "numbered",
    "parse",
    "scan",
    "unique_values",
]
