"""CSV files: scan each into ranges, guess types from a sample, parse every range into rows and bad rows, and learn on
the way whether all of them bear the guess out.

Nothing of this knows Spark; all that travels to a task can be pickled.
"""

from frazil.pipeline.csv.dialect import CsvOptions, Dialect
from frazil.pipeline.csv.infer import ColumnFacts, decide, facts_of
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
    "facts_of",
    "numbered",
    "parse",
    "scan",
    "unique_values",
]
