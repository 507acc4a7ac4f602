"""The pipeline's temporary files: in the data directory, one folder a process, gone with the next start.

Spark and its JVM copy their jars and spill into a temporary folder that they remove when they end in good order. A
killed one leaves a hundred megabytes behind, and the system's temporary folder is nobody's to clean up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def own_scratch_folder(parent: Path) -> Path:
    """A folder for the temporary files of this process and its JVM; those of processes that are gone are removed.

    Whoever sets SPARK_LOCAL_DIRS has a better place for what is large.
    """
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in parent.iterdir():
        if not Path("/proc", left.name).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = parent / str(os.getpid())
    folder.mkdir(exist_ok=True, mode=0o700)
    tempfile.tempdir = str(folder)
    if not os.environ.get("SPARK_LOCAL_DIRS"):
        os.environ["SPARK_LOCAL_DIRS"] = str(folder)
        # The launcher of the JVM reads this variable; Spark's own settings come too late for what its start writes.
        options = os.environ.get("JDK_JAVA_OPTIONS", "")
        os.environ["JDK_JAVA_OPTIONS"] = f'{options} "-Djava.io.tmpdir={folder}"'.strip()
    return folder
