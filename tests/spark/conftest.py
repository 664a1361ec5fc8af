"""One Spark for all tests of this room: two threads, UTC, little memory, no UI."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.java_home import JavaError, find_java
from spark.spark_session import NO_CALL_SITES

# A report of a few lines costs 30 to 70 s of processor time when Spark compiles code for every
# stage, and half of that when it does not. Tests that compare with the plain program, and those
# that run the command, take the compiled code.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

# The quick compiler alone has 48 MB for its code: one report fills them, and from then on Java
# throws code away and compiles it again, which was a third of the processor time.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session; skipped without a Java, but in CI that is a failure."""
    try:
        java = find_java(os.environ)
    except JavaError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and Spark has no Java: {error}")
        pytest.skip(f"Spark has no Java: {error}")
    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.home))
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
            .config(map=NO_CALL_SITES)
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", str(scratch))
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.default.parallelism", "2")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        _interpret(session)
        yield session
        session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session, which compiles its expressions for a while, as `bin/mqreport`'s does."""
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield spark
    _interpret(spark)


def _interpret(session: SparkSession) -> None:
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
