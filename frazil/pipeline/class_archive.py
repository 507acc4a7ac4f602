"""Class archive: the classes that Spark's JVM loads and links from some hundred jars at each start, stored once.

With it the JVM of a pipeline takes 17 s of the processor until it is warm instead of 27 (two busy cores). Set-up makes
it: `python -m frazil.pipeline.class_archive`. Without it everything works, only later.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyspark

_EXIT_SECONDS = 300.0


def archive() -> Path:
    """Beside the jars whose classes it holds: it fits no others."""
    return Path(pyspark.__file__).with_name("frazil-classes.jsa")


def java_options() -> str:
    """The options of a JVM that uses the archive. It ignores one that does not fit its Java or its jars."""
    if not archive().exists():
        return ""
    quiet = " ".join(f"-Xlog:{tag}=off" for tag in ("cds", "cds+dynamic", "class+path"))
    return f'"-XX:SharedArchiveFile={archive()}" -Xshare:auto -XX:+VerifySharedSpaces {quiet}'


def make_archive() -> None:
    """Start Spark, let it load what a commit needs, and have it write down its classes as it ends.

    It is whole before it has its name: a JVM does not survive half an archive. Other damage it finds and passes over.
    """
    from pyspark import SparkContext

    from frazil.pipeline.commit.target import warm_up
    from frazil.pipeline.session import open_session
    from frazil.storage import Warehouse, sync_files

    unfinished = archive().with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="frazil-classes-") as folder:
        session = open_session(
            catalog_url=f"sqlite:///{folder}/catalog.db",
            warehouse=Warehouse(f"file://{folder}/warehouse"),
            extra={"spark.driver.defaultJavaOptions": f'"-XX:ArchiveClassesAtExit={unfinished}" -Xlog:cds=off'},
        )
        warm_up(session)
        gateway = SparkContext._gateway
        assert gateway is not None
        session.stop()
        java = gateway.proc
        java.stdin.close()  # which it takes as the end of its work
        java.wait(_EXIT_SECONDS)
    sync_files([str(unfinished)])
    unfinished.replace(archive())


def _is_of_these_jars() -> bool:
    jars = archive().parent / "jars"
    return archive().exists() and archive().stat().st_mtime > jars.stat().st_mtime


if __name__ == "__main__":
    if not _is_of_these_jars():
        make_archive()
