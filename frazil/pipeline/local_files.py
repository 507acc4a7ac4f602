"""Local file system of Spark: permissions of new files are set by the JVM itself.

Hadoop's own class has no native library here and starts a `chmod` process for every file, checksum and folder that it
makes. That was three quarters of the time of a commit to many partitions, and eight processes in every other commit.
The replacement is compiled when Spark has started, by the compiler that Spark brings for its queries (Janino), so that
neither a Java compiler nor a binary file is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import SparkContext

_CLASS = "frazil.LocalFiles"
_SOURCE = """
package frazil;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            String mode = permission.getUserAction().SYMBOL
                + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(this.pathToFile(path).toPath(), PosixFilePermissions.fromString(mode));
        }
    }
}
"""


def local_files_settings(catalog: str) -> dict[str, str]:
    """The settings by which a catalog of a session uses the class. Spark's other files stay with Hadoop's own."""
    prefix = f"spark.sql.catalog.{catalog}.hadoop.fs.file.impl"
    # Hadoop keeps one file system for each scheme whatever its class is, and Spark has opened one by then.
    return {prefix: _CLASS, f"{prefix}.disable.cache": "true"}


def install_local_files(context: SparkContext) -> None:
    """Compile the class and add it to the class path of this JVM, once in its life."""
    jvm: Any = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    folder = Path(str(context._temp_dir), "classes")
    if folder.exists():
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE)
    for name, code in compiler.getBytecodes().items():
        path = folder.joinpath(*name.split(".")).with_suffix(".class")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(code))
    loader.addURL(jvm.java.io.File(str(folder)).toURI().toURL())
