"""The engine's words and ours."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frazil.serving.sql.worker.engine_errors import translated


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Exception("Out of Memory Error: could not allocate block (307.0 MiB/307.1 MiB used)"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("std::bad_alloc"), "out_of_memory"),
        (pa.ArrowMemoryError("malloc of size 4096 failed"), "out_of_memory"),
        (Exception("Conversion Error: Could not convert string 'out of memory' to INT32"), "conversion_failed"),
        (OSError("Conversion Error: Could not convert string 'x' to INT32"), "conversion_failed"),
        (Exception("Out of Range Error: Overflow in addition of INT32"), "conversion_failed"),
        (Exception("Invalid Input Error: strptime failed"), "query_failed"),
        (Exception("Parser Error: syntax error at or near \"x\"\n\nLINE 1: x\n ^"), "bad_sql"),
        (Exception("Binder Error: No function matches"), "bad_sql"),
        (Exception("Catalog Error: Table with name x does not exist!\nDid you mean \"secret_t\"?"), "table_not_found"),
        (Exception("IO Error: Cannot open file \"/data/warehouse/x.parquet\": No such file"), "files_unreadable"),
        (Exception("HTTP Error: HTTP GET error on 'http://store/x' (HTTP 404)"), "files_unreadable"),
        (Exception("Permission Error: Cannot access file \"/etc/passwd\""), "files_unreadable"),
        (Exception("INTERNAL Error: index 3 of a vector of 2\nStack Trace: /usr/lib/x"), "query_failed"),
        (RecursionError(), "bad_sql"),
        (Exception("something else"), "query_failed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("restricted", [False, True])
def test_codes(error: Exception, code: str, restricted: bool) -> None:
    answer = translated(error, restricted=restricted)
    if restricted and code == "query_failed" and "INTERNAL" not in str(error):
        code = "conversion_failed"
    assert answer.code == code
    assert answer.message and answer.hint
    said = answer.message + answer.hint
    for leak in ("/data", "/etc", "/usr", "http://", "secret_t", "LINE 1", "Stack Trace"):
        assert leak not in said
    if restricted:
        assert "'x'" not in said and "'out of memory'" not in said


def test_names_inside_the_engine_are_not_passed_on() -> None:
    error = Exception('Binder Error: Referenced column "p123" not found in s123.r0')
    assert "123" not in translated(error, restricted=False, hidden=("s123", "p123")).message
