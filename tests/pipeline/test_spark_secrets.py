from __future__ import annotations

import pytest

from frazil.pipeline import is_secret
from frazil.pipeline.spark_secrets import without_secrets

SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": "x",
    "spark.hadoop.fs.s3a.access.key": "AKIA",
    "spark.hadoop.fs.s3a.session.token": "x",
    "spark.authenticate.secret": "x",
    "spark.hadoop.javax.jdo.option.ConnectionPassword": "x",
    "spark.sql.catalog.other.jdbc.password": "x",
    "spark.sql.catalog.rest.token": "x",
    "spark.sql.catalog.rest.credential": "id:key",
    "spark.ssl.keyPassword": "123456",
    "spark.ssl.trustStorePassword": "x",
    "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "x",
    "spark.kubernetes.authenticate.driver.oauthToken": "x",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "x",
    "spark.sql.catalog.other.uri": "jdbc:postgresql://db.example/lake?user=me&password=hunter2",
    "spark.hadoop.fs.webhdfs.url": "http://me:hunter2@host/",
    "spark.driver.extraJavaOptions": "-Xss4m -Djavax.net.ssl.keyStorePassword=hunter2",
    "spark.executorEnv.DATABASE": "postgres://:hunter2@host/db",
    "spark.hadoop.fs.s3a.encryption.key": "x",
    "spark.hadoop.fs.s3a.server-side-encryption.key": "x",
    "spark.hadoop.fs.azure.sas.container.account.blob.core.windows.net": "x",
    "spark.executorEnv.SETTINGS": '{"user": "me", "password": "hunter2"}',
}
PLAIN = {
    "spark.jars.excludes": "org.example:token-tools",
    "spark.hadoop.fs.s3a.encryption.algorithm": "SSE-KMS",
    "spark.ui.enabled": "true",
    "spark.authenticate": "true",
    "spark.authenticate.secretBitLength": "256",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "spark.kubernetes.authenticate.driver.oauthTokenFile": "/var/run/token",
    "spark.kubernetes.authenticate.caCertFile": "/var/run/ca",
    "spark.redaction.regex": "(?i)secret|password",
    "spark.security.credentials.hive.enabled": "false",
    "spark.sql.catalog.other.uri": "jdbc:postgresql://db.example:5432/lake",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.master": "spark://master.example:7077",
    "spark.jars.packages": "org.apache.iceberg:iceberg-aws-bundle:1.12.0,org.postgresql:postgresql:42.7.7",
    "spark.app.name": "mail@example.org: reports",
}


@pytest.mark.parametrize("key", SECRETS)
def test_secrets_are_known_by_key_or_value(key: str) -> None:
    assert is_secret(key, SECRETS[key])


@pytest.mark.parametrize("key", PLAIN)
def test_what_is_about_secrets_is_none(key: str) -> None:
    assert not is_secret(key, PLAIN[key])


def test_what_goes_to_the_command_line_has_none() -> None:
    assert without_secrets({**SECRETS, "spark.ui.enabled": "true"}) == {"spark.ui.enabled": "true"}
