"""For a JVM that lives for seconds: thorough compilation takes as much of the processor as all the rest of a start."""

from __future__ import annotations

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_JVM = {"spark.driver.extraJavaOptions": OPTIONS}
