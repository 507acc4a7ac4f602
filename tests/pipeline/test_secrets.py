"""The keys of the store and the password of the catalog show nowhere: in no process list, dump, plan or log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.seaweed import SeaweedServer
from tests.contract.servers import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.s3]
SPARK_CONF = {
    "spark.hadoop.fs.s3a.secret.key": "hunter-of-a-key",
    "spark.executorEnv.ADDRESS": "http://me:hunter-of-an-address@h/",
    "spark.executor.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=hunter-of-an-option",
}
ROOT = Path(__file__).parent.parent.parent


def test_a_process_that_commits_to_s3_shows_no_secret(
    tmp_path: Path, seaweed: SeaweedServer, catalog_postgres: PostgresServer
) -> None:
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text("".join(f"{name} = {value}\n" for name, value in seaweed.credentials.items()))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FRAZIL_DATA_DIR": str(tmp_path / "data"),
        "FRAZIL_WAREHOUSE__URL": "s3://lake/secrets",
        "FRAZIL_WAREHOUSE__ENDPOINT": seaweed.url,
        "FRAZIL_WAREHOUSE__CREDENTIALS_FILE": str(keys),
        "FRAZIL_CATALOG__URL": catalog_postgres.url,
        "FRAZIL_CATALOG__NAME": "hidden",
        "FRAZIL_CATALOG__USER": catalog_postgres.credentials["user"],
        "FRAZIL_CATALOG__PASSWORD": catalog_postgres.credentials["password"],
        "FRAZIL_PIPELINE__SPARK_CONF": json.dumps(SPARK_CONF),
    }
    probe = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.session_probe"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    shown = probe.stdout + probe.stderr
    assert probe.returncode == 0, probe.stderr[-3000:]
    assert "rows: 1" in probe.stdout, "the secrets reached the engine"
    assert "spark.sql.catalog.hidden.s3.secret-access-key" in shown, "the settings were shown"
    assert "spark.sql.catalog.hidden.warehouse=s3://lake/secrets" in shown, "the command line was shown"
    assert "spark.hadoop.fs.s3a.secret.key" in shown, "also those that are the user's own"
    for secret in (seaweed.credentials["secret_access_key"], catalog_postgres.credentials["password"], "hunter-of"):
        around = [shown[max(0, at - 150) : at] for at in range(len(shown)) if shown.startswith(secret, at)]
        assert around == []
