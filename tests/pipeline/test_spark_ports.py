"""Spark's own ports: nobody else reaches them, and who does without the secret is refused."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from frazil.errors import Misconfigured
from frazil.pipeline import open_session
from frazil.storage import Warehouse
from tests.lake_fixtures import SparkLake

pytestmark = [pytest.mark.spark]


def children_of(pid: int) -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # gone since it was listed
        if parent == pid:
            child = int(status.parent.name)
            yield child
            yield from children_of(child)


def listening(pids: list[int]) -> dict[tuple[str, int], int]:
    """Address and port of every TCP socket on which one of these processes listens, with the process."""
    inodes: dict[str, int] = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes[os.readlink(descriptor)] = pid
            except OSError:
                continue
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and (socket_name := f"socket:[{words[9]}]") in inodes:
                address, _, port = words[1].partition(":")
                found[(_address(address), int(port, 16))] = inodes[socket_name]
    return found


def _address(text: str) -> str:
    raw = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def test_every_port_of_spark_is_on_loopback(spark_lake: SparkLake) -> None:
    session = spark_lake.session
    session.sparkContext.parallelize([1, 2], 2).map(lambda number: number + 1).collect()  # its Python workers run
    gateway = session.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc.pid
    ports = listening([java, *children_of(java)])
    configured = {int(session.sparkContext.getConf().get(f"spark.{name}.port", "0") or 0) for name in ("driver",)}
    assert configured <= {port for _, port in ports}, "the look at the sockets finds what Spark says of itself"
    assert gateway.gateway_parameters.port in {port for _, port in ports}
    assert all(ipaddress.ip_address(address).is_loopback for address, _ in ports), ports
    accumulators = getattr(session.sparkContext, "_accumulatorServer", None)
    assert accumulators is None or ipaddress.ip_address(accumulators.server_address[0]).is_loopback
    assert gateway.gateway_parameters.auth_token, "Python's way to the JVM has a token of its own"


def test_the_ports_of_the_driver_want_its_secret(spark_lake: SparkLake) -> None:
    context = spark_lake.session.sparkContext
    assert context.getConf().get("spark.authenticate") == "true"
    host, port = context.getConf().get("spark.driver.host"), int(context.getConf().get("spark.driver.port") or 0)
    assert host == "127.0.0.1"
    assert _driver_answers(context, host, port, authenticated=True), "who has the secret gets an answer"
    with pytest.raises(Py4JJavaError):
        _driver_answers(context, host, port, authenticated=False)


def _driver_answers(context: Any, host: str, port: int, *, authenticated: bool) -> bool:
    """Ask the driver's RPC port for its block manager, as an executor would, from a second RPC environment."""
    spark = context._jvm.org.apache.spark
    settings = spark.SparkConf(False).set("spark.rpc.askTimeout", "20s").set("spark.rpc.lookupTimeout", "20s")
    settings = settings.set("spark.authenticate", "true" if authenticated else "false")
    entries = getattr(getattr(spark.internal.config, "package$"), "MODULE$")
    security = spark.SecurityManager(settings, context._jvm.scala.Option.empty(), entries.AUTH_SECRET_FILE())
    environment = spark.rpc.RpcEnv.create("probe", host, host, 0, settings, security, 1, True)
    try:
        found = environment.setupEndpointRef(spark.rpc.RpcAddress(host, port), "BlockManagerMaster")
        return bool(found.name() == "BlockManagerMaster")
    finally:
        environment.shutdown()
        environment.awaitTermination()


def test_the_python_gateway_wants_its_token(spark_lake: SparkLake) -> None:
    gateway = spark_lake.session.sparkContext._gateway
    assert gateway is not None
    with socket.create_connection(("127.0.0.1", gateway.gateway_parameters.port), timeout=20) as stranger:
        stranger.sendall(b"r\nu\njava.lang.System\nrj\ne\n")
        answer = stranger.makefile("rb").readline()
    assert not answer.startswith(b"!y"), "!y is py4j's yes"


def test_a_cluster_without_its_secret_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as refused:
        open_session(
            catalog_url=f"sqlite:///{tmp_path}/catalog.db",
            warehouse=Warehouse(f"file://{tmp_path}/warehouse"),
            master="spark://127.0.0.1:1",
        )
    assert refused.value.code == "spark_secret_missing" and "spark_secrets_file" in refused.value.hint
