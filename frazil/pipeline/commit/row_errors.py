"""Row errors: whether a stage failed because of its rows, or because of the engine, the store or the catalog.

Nothing is decided by this alone: what may be of the rows is tried again in halves, beside a control row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from frazil.errors import FrazilError, Unavailable

# As they stand in stack traces, of the driver and of tasks.
_TROUBLE = (
    "java.lang.OutOfMemoryError",
    "java.lang.StackOverflowError",
    "java.lang.InterruptedException",
    "java.net.",
    "java.sql.",
    "java.nio.file.AccessDeniedException",
    "java.nio.file.NoSuchFileException",
    "org.sqlite.",
    "org.postgresql.",
    "org.apache.iceberg.exceptions.CommitFailedException",
    "org.apache.iceberg.exceptions.CommitStateUnknownException",
    "org.apache.iceberg.exceptions.ServiceUnavailableException",
    "org.apache.iceberg.exceptions.ServiceFailureException",
    "org.apache.iceberg.exceptions.NoSuchTableException",
    "org.apache.iceberg.jdbc.Unchecked",
    "software.amazon.awssdk.core.exception.",
    "ExecutorLostFailure",
    "SparkContext was shut down",
    "cancelled",
    "No space left on device",
    "Disk quota exceeded",
    "Read-only file system",
    "Input/output error",
    "Permission denied",
    "Too many open files",
)
_S3 = "software.amazon.awssdk.services.s3.model.S3Exception"
_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
_NAMED_OUT_OF_MEMORY = re.compile(rf"(?:^|: ){re.escape(_OUT_OF_MEMORY)}(?::|$)", re.MULTILINE)
_QUOTED = re.compile(r"""\S*/\S*|'[^'\n]*'|"[^"\n]*"|`[^`\n]*`""")
"""Where an error repeats a value of a row: in paths, which have no white space, and in quotes. No value may pass for
an error of the engine. What this hides of a real one is found by the control row, which fails too."""
_MAX_CAUSES = 32


def may_be_of_rows(error: BaseException) -> bool:
    """Whether other rows might have been staged where these were not."""
    links = list(_chain(error))
    if any(isinstance(link, OSError | MemoryError) or _is_without_answer(link) for link in links):
        return False
    text = _QUOTED.sub(" ", "\n".join(_error_text(link) for link in links))
    if any(name in text for name in _TROUBLE):
        return False
    # A store refuses a name or a size by 400; all its other answers are of the store.
    return _S3 not in text or "Status Code: 400" in text


def _is_without_answer(error: BaseException) -> bool:
    """Whether Java did not even say what went wrong."""
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the JVM ran out of memory, and is not to be trusted any longer even where it answers."""
    for link in _chain(error):
        classes = _java_classes(link)
        if classes is None:
            found = _NAMED_OUT_OF_MEMORY.search(_QUOTED.sub(" ", _error_text(link))) is not None
        else:
            found = _OUT_OF_MEMORY in classes
        if found:
            return True
    return False


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _java_classes(error: BaseException) -> list[str] | None:
    """The classes of the Java exception and of its causes; None where there is none, or the JVM does not answer."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if java is None:
        return None
    classes: list[str] = []
    try:
        while java is not None and len(classes) < _MAX_CAUSES:
            classes.append(str(java.getClass().getName()))
            java = java.getCause()
    except (Py4JError, OSError, AttributeError):
        return None
    return classes


def _error_text(error: BaseException) -> str:
    """The text of the error, with the causes and stack traces of Java."""
    if isinstance(error, Py4JJavaError):
        try:
            return str(error)
        except (Py4JError, OSError):  # the JVM is gone, and the text with it
            return "java.net."
    texts = [str(error), str(getattr(error, "_stackTrace", "") or ""), str(getattr(error, "_desc", "") or "")]
    return "\n".join(texts)


class RowsRefused(Unavailable):
    """These rows could not be staged, and it may be because of them."""

    code = "stage_failed"

    @classmethod
    def after(cls, error: Exception, doing: str) -> RowsRefused:
        if isinstance(error, FrazilError):
            return cls(error.message, code=error.code, hint=error.hint)
        return cls(f"cannot {doing}: {type(error).__name__}: {str(error)[:300]}")
