"""Spark session: versions that fit together, and settings for many small commits beside a few large ones."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from frazil.errors import Misconfigured
from frazil.pipeline.class_archive import java_options
from frazil.pipeline.local_files import install_local_files, local_files_settings
from frazil.pipeline.spark_secrets import REDACTION, without_secrets
from frazil.storage import Warehouse

CATALOG = "frazil"
SCRATCH = "scratch"
_ICEBERG = "1.12.0"


def packages(*, s3: bool = False, postgres: bool = False) -> str:
    """The jars beside Spark's own, as `spark.jars.packages` takes them."""
    wanted = [f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{_ICEBERG}", "org.xerial:sqlite-jdbc:3.50.3.0"]
    if s3:
        wanted.append(f"org.apache.iceberg:iceberg-aws-bundle:{_ICEBERG}")
    if postgres:
        wanted.append("org.postgresql:postgresql:42.7.7")
    return ",".join(wanted)


def open_session(
    *,
    catalog_url: str,
    warehouse: Warehouse,
    catalog_name: str = CATALOG,
    catalog_user: str = "",
    catalog_password: str = "",
    master: str = "local[2]",
    driver_memory: str = "1g",
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or join the session of this process. The catalog is the one that `open_lake` opens."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.app.name": "frazil",
        "spark.master": master,
        "spark.driver.memory": driver_memory,
        # After an OutOfMemoryError nobody knows which of its threads are left: a JVM that ends is started again.
        "spark.driver.defaultJavaOptions": f"-XX:+ExitOnOutOfMemoryError {java_options()}".strip(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Ports of the driver run what they are sent. On a machine of several users loopback alone keeps nobody out. For
        # local masters, YARN and Kubernetes Spark makes up the secret, another one at each start.
        "spark.authenticate": "true",
        "spark.log.level": "WARN",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars.packages": packages(s3=warehouse.is_s3, postgres=not catalog_url.startswith("sqlite:")),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **catalog_settings(catalog_name, catalog_url, warehouse, user=catalog_user, password=catalog_password),
        # Small commits: as many partitions as cores, and no second planning round.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        # Maintenance has a pool of its own beside that of the commits, and gets a core when they leave one.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": Path(__file__).with_name("pools.xml").as_uri(),
        "spark.python.daemon.module": "frazil.pipeline.worker_daemon",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Secrets of the catalog and the store would otherwise show in logs and plans.
        "spark.redaction.regex": REDACTION,
        # A table in a throw-away folder, written once at the start so that the first real commit finds a warm engine.
        f"spark.sql.catalog.{SCRATCH}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{SCRATCH}.type": "hadoop",
        f"spark.sql.catalog.{SCRATCH}.warehouse": f"file://{tempfile.gettempdir()}/frazil-warm-{os.getpid()}",
        **(extra or {}),
    }
    # Elsewhere the tasks run in other JVMs, which do not have the class.
    has_local_files = settings["spark.master"].startswith("local")
    if has_local_files:
        settings |= local_files_settings(catalog_name) | local_files_settings(SCRATCH)
    _check_secret(settings)
    try:
        # The JVM gets its settings on its command line, which every user of the machine can read: the secrets follow
        # once it runs, before Spark starts in it.
        SparkContext._ensure_initialized(conf=_conf(without_secrets(settings)))
        context = SparkContext.getOrCreate(_conf(settings))
        if has_local_files:
            install_local_files(context)
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except (Py4JError, RuntimeError, OSError) as error:
        raise Misconfigured(
            f"Spark did not start: {str(error).splitlines()[0][:300]}",
            hint="run `frazil doctor`: it checks Java 17, the jars and the memory",
        ) from error


def _conf(settings: Mapping[str, str]) -> SparkConf:
    return SparkConf().setAll(list(settings.items()))


def _check_secret(settings: Mapping[str, str]) -> None:
    """A cluster of Spark's own has one secret for all who use it, which its workers were started with."""
    is_cluster = settings["spark.master"].startswith("spark://")
    if is_cluster and settings["spark.authenticate"] == "true" and not settings.get("spark.authenticate.secret"):
        raise Misconfigured(
            "the Spark cluster needs a secret, and none is set",
            code="spark_secret_missing",
            hint="write the cluster's spark.authenticate.secret into the file that pipeline.spark_secrets_file names",
        )


def catalog_settings(
    name: str, url: str, warehouse: Warehouse, *, user: str = "", password: str = ""
) -> dict[str, str]:
    """The settings by which a Spark session sees the catalog that `open_lake` opens with the same arguments."""
    jdbc, properties = _jdbc(url, user, password)
    properties |= {"type": "jdbc", "jdbc.schema-version": "V1", "uri": jdbc, "cache-enabled": "false"}
    properties |= warehouse.for_spark()
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in properties.items()},
    }


def is_alive(session: SparkSession) -> bool:
    """Whether the JVM behind the session still answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


def _jdbc(url: str, user: str, password: str) -> tuple[str, dict[str, str]]:
    if url.startswith("sqlite:///"):
        # The other writers of the catalog are short; waiting for them is better than failing a stage.
        return f"jdbc:sqlite:{url.removeprefix('sqlite:///')}?busy_timeout=30000", {}
    scheme, _, rest = url.partition("://")
    if scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise Misconfigured(
            f"no catalog has the scheme {scheme!r}", hint="set catalog.url to sqlite:///… or postgresql://…"
        )
    # A database that is silent must not hold up a stage for ever. In seconds.
    bounds = {"jdbc.loginTimeout": "20", "jdbc.connectTimeout": "10", "jdbc.socketTimeout": "20"}
    return f"jdbc:postgresql://{rest}", {"jdbc.user": user, "jdbc.password": password, **bounds}
