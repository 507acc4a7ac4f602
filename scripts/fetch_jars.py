"""Fetch the jars that frazil's Spark sessions name, through Spark's own resolver, and list where they lie.

The coordinates come from `frazil.pipeline.session`, the one place that knows them. On a machine that has them already
this takes no Spark and no time; elsewhere the session that fetches them also proves that Java and Spark work together.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from frazil.pipeline import packages

# Where Spark 4.1 puts what it resolved, unless told otherwise; if it moves, we fetch once more than needed.
RESOLVED = Path.home() / ".ivy2.5.2" / "jars"


def present(coordinates: str) -> list[Path]:
    """The local files of these coordinates, or nothing if one is missing."""
    jars = [RESOLVED / "{}_{}-{}.jar".format(*coordinate.split(":")) for coordinate in coordinates.split(",")]
    return jars if all(jar.is_file() for jar in jars) else []


def fetch(coordinates: str) -> list[Path]:
    """The local files of these coordinates and of what they depend on, downloaded where missing."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[1]")
        .appName("frazil-setup")
        .config("spark.jars.packages", coordinates)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        session.sql("SELECT 1").collect()
        jars = session.sparkContext.getConf().get("spark.jars") or ""
    finally:
        session.stop()
    return [Path(unquote(urlsplit(jar).path)) for jar in jars.split(",") if jar]


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch the jars that frazil's Spark sessions name.")
    parser.add_argument("--s3", action="store_true", help="also what an S3 warehouse needs")
    parser.add_argument("--postgres", action="store_true", help="also what a PostgreSQL catalog needs")
    parser.add_argument("--list", type=Path, required=True, help="file to write the paths of the jars into")
    arguments = parser.parse_args()
    coordinates = packages(s3=arguments.s3, postgres=arguments.postgres)
    jars = present(coordinates) or fetch(coordinates)
    missing = [jar for jar in jars if not jar.is_file()]
    if missing or not jars:
        print(f"Spark resolved no usable jars; missing: {missing}", file=sys.stderr)
        return 1
    arguments.list.write_text("".join(f"{jar}\n" for jar in jars))
    return 0


if __name__ == "__main__":
    sys.exit(main())
