"""A stream in a process of its own, to be killed: a topic to Parquet files, from its checkpoint.

python -m tests.spark.sources.stream_program MASTER NAME_SERVER TOPIC DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.job.java_home import find_java
from spark.job.spark_session import LOCAL, NO_CALL_SITES, PLAIN_PLANS, worker_environment
from spark.sources.registration import register

SETTINGS: dict[str, bool | float | int | str | None] = {
    **{name: value for name, value in LOCAL.items() if "daemon" not in name},
    **NO_CALL_SITES,
    **PLAIN_PLANS,
    # Executors that are killed are started again, and their tasks.
    "spark.task.maxFailures": "20",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.memory": "512m",
}


def start(spark: SparkSession, name_server: str, topic: str, directory: Path) -> StreamingQuery:
    """The stream, on and on."""
    register(spark)
    stream = spark.readStream.format("rocketmq").options(
        nameServers=name_server,
        topic=topic,
        start="earliest",
        maxMessagesPerTrigger="500",
        maxMessagesPerPartition="100",
        timeoutMs="2000",
    )
    return (
        stream.load()
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def main() -> None:
    """Until it is killed; exits with what the query failed by."""
    master, name_server, topic, directory = sys.argv[1:]
    os.environ["JAVA_HOME"] = str(find_java(os.environ).home)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_WORKER_DIR"] = str(Path(directory) / "work")
    os.environ |= worker_environment(os.environ)
    builder = SparkSession.builder.master(master).appName("killed").config(map=SETTINGS)
    spark = builder.config("spark.local.dir", directory).getOrCreate()
    start(spark, name_server, topic, Path(directory)).awaitTermination()


if __name__ == "__main__":
    main()
