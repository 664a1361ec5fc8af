"""A stream in a process of its own, to be killed: a topic to Parquet files, or to another topic.

python -m tests.spark.sources.stream_program MASTER NAME_SERVER TOPIC DIRECTORY [COPIES]

A copy has the property PLACE, which says where in TOPIC its message is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.job.java_home import find_java
from spark.job.spark_session import LOCAL, NO_CALL_SITES, PLAIN_PLANS, worker_environment
from spark.sources.registration import register
from tests.spark.scratch_home import scratch_home

PLACE: Final = "place"
SETTINGS: dict[str, bool | float | int | str | None] = {
    **LOCAL,
    **NO_CALL_SITES,
    **PLAIN_PLANS,
    # Executors that are killed are started again, and their tasks.
    "spark.task.maxFailures": "20",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": LOCAL["spark.driver.extraJavaOptions"],
    # The judge wants to know which batch each file is of.
    "spark.sql.streaming.fileSink.log.cleanupDelay": "1d",
}


def read(spark: SparkSession, name_server: str, topic: str, task_size: int) -> DataFrame:
    """The stream. task_size: the most messages of a task."""
    register(spark)
    return (
        spark.readStream.format("rocketmq")
        .options(
            nameServers=name_server,
            topic=topic,
            start="earliest",
            maxMessagesPerTrigger="4000",
            maxMessagesPerPartition=str(task_size),
            timeoutMs="2000",
        )
        .load()
    )


def start(rows: DataFrame, name_server: str, directory: Path, *copies: str) -> StreamingQuery:
    """On and on."""
    if copies:
        place = f"map('{PLACE}', concat(queue_id, '-', queue_offset)) properties"
        writer = rows.selectExpr("body", "queue_id", place).writeStream.format("rocketmq")
        writer = writer.options(
            nameServers=name_server,
            topic=copies[0],
            shardColumn="queue_id",
            sendBytes="4096",
            timeoutMs="2000",
        )
    else:
        writer = rows.writeStream.format("parquet").option("path", str(directory / "out"))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(processingTime="100 milliseconds").start()


def main() -> None:
    """Until it is killed; exits with what the query failed by."""
    master, name_server, topic, place, *copies = sys.argv[1:]
    directory = Path(place)
    os.environ["JAVA_HOME"] = str(find_java(os.environ).home)
    os.environ["SPARK_HOME"] = str(scratch_home(directory))
    os.environ |= worker_environment(os.environ)
    builder = SparkSession.builder.master(master).appName("killed").config(map=SETTINGS)
    spark = builder.config("spark.local.dir", place).getOrCreate()
    # Of a queue's rows only those of a task are written in their order.
    rows = read(spark, name_server, topic, task_size=1_000_000 if copies else 500)
    start(rows, name_server, directory, *copies).awaitTermination()


if __name__ == "__main__":
    main()
