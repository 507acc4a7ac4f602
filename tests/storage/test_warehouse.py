"""The warehouse setting: what it becomes in the words of each engine, and what it never shows."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from frazil.errors import Misconfigured
from frazil.storage import Warehouse, local_path

SECRET = "5tay-h1dden"
S3 = Warehouse("s3://bucket/pre fix", endpoint="http://127.0.0.1:1", access_key_id="K", secret_access_key=SECRET)


def test_a_local_warehouse_needs_nothing_else(tmp_path: Path) -> None:
    warehouse = Warehouse(f"file://{tmp_path}/a folder")
    assert not warehouse.is_s3 and warehouse.folder() == tmp_path / "a folder"
    assert warehouse.for_pyiceberg() == warehouse.for_spark() == {"warehouse": f"file://{tmp_path}/a folder"}


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:/a/b", "/a/b"),
        ("file:///a/b c", "/a/b c"),
        ("file://localhost/a/b", "/a/b"),
        ("/a/b", "/a/b"),
        ("file:///a/s=x%2Fy", "/a/s=x%2Fy"),
        ("file:///a/ü", "/a/ü"),
    ],
)
def test_every_spelling_of_a_local_address(url: str, path: str) -> None:
    assert local_path(url) == Path(path)


@pytest.mark.parametrize("url", ["gs://b/x", "http://b/x", "relative/path", "", "s4://b"])
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        Warehouse(url)
    assert "s3://bucket/prefix" in refused.value.hint


@pytest.mark.parametrize("url", ["file:///a#b", "s3://bucket/a?b"])
def test_characters_that_cut_an_address_are_refused(url: str) -> None:
    with pytest.raises(Misconfigured):
        Warehouse(url, access_key_id="K", secret_access_key=SECRET)


@pytest.mark.parametrize("given", [{}, {"access_key_id": "K"}, {"secret_access_key": SECRET}])
def test_s3_without_credentials_says_where_to_put_them(given: dict[str, str]) -> None:
    with pytest.raises(Misconfigured) as refused:
        Warehouse("s3://bucket", **given)  # type: ignore[arg-type]
    assert "FRAZIL_WAREHOUSE__SECRET_ACCESS_KEY" in refused.value.hint and "0600" in refused.value.hint
    assert SECRET not in str(refused.value.body())


def test_both_engines_are_told_the_same() -> None:
    python, spark = S3.for_pyiceberg(), S3.for_spark()
    for name in ("warehouse", "s3.endpoint", "s3.access-key-id", "s3.secret-access-key"):
        assert python[name] == spark[name]
    assert python["s3.region"] == spark["client.region"]
    assert (python["s3.force-virtual-addressing"], spark["s3.path-style-access"]) == ("false", "true")


def test_no_engine_waits_for_ever() -> None:
    python, spark = S3.for_pyiceberg(), S3.for_spark()
    assert float(python["s3.request-timeout"]) * 1000 == float(spark["http-client.apache.socket-timeout-ms"]) <= 60_000
    assert float(python["s3.connect-timeout"]) * 1000 == float(spark["http-client.apache.connection-timeout-ms"])
    assert int(spark["s3.retry.num-retries"]) <= 5 and int(spark["s3.retry.max-wait-ms"]) <= 5000


def test_neither_text_nor_name_shows_the_keys() -> None:
    assert SECRET not in repr(S3) and SECRET not in str(S3) and "'K'" not in repr(S3)
    assert SECRET not in f"{S3!r}{[S3]}{vars(Misconfigured('x', details=repr(S3)))}"
    assert pickle.loads(pickle.dumps(S3)) == S3  # noqa: S301 - our own bytes
