"""The Spark of this test process, from another one: a process to be killed need not wait for a JVM of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Jvm:
    port: int
    secret: str

    def join(self) -> SparkSession:
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
        spark = gateway.jvm.org.apache.spark
        context = spark.api.java.JavaSparkContext.fromSparkContext(spark.SparkContext.getOrCreate())
        settings = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
        return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=settings))


def jvm_of(session: SparkSession) -> Jvm:
    gateway = session.sparkContext._gateway
    assert gateway is not None
    parameters = gateway.gateway_parameters
    return Jvm(parameters.port, parameters.auth_token)
