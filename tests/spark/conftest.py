"""One Spark for all tests of this room, set up as the command does it for a local master."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.job.java_home import JavaError, find_java
from spark.job.spark_session import LOCAL, NO_CALL_SITES, PLAIN_PLANS, worker_environment

# The quick compiler alone has 48 MB for its code: one report fills them, and from then on Java
# throws code away and compiles it again, which was a third of the processor time.
JAVA_OPTIONS = "-XX:ReservedCodeCacheSize=256m"


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
        for name, value in worker_environment(os.environ).items():
            patch.setenv(name, value)
        java_options = f"{LOCAL['spark.driver.extraJavaOptions']} {JAVA_OPTIONS}"
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config(map={**LOCAL, **NO_CALL_SITES, **PLAIN_PLANS})
            .config("spark.driver.extraJavaOptions", java_options)
            .config("spark.local.dir", str(scratch))
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.default.parallelism", "2")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
