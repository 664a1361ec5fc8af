"""Starts Spark for a report, or joins the one that spark-submit has started.

Run on the driver; knows nothing of reports. A JVM of our own writes its log to a file that is
named when something fails and removed when nothing did: stdout and stderr stay the program's.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from spark.job.spark_submit import is_under_spark_submit

_LOG: Final = logging.getLogger(__name__)

ALWAYS: Final = {"spark.sql.session.timeZone": "UTC"}
"""Settings that the figures rely on."""
NO_CALL_SITES: Final = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
"""Otherwise PySpark sends the JVM, for error messages, the line of Python that made each column:
half of all calls between the two."""
PLAIN_PLANS: Final = {
    # The JVM moves bytes between files and Python, and writes tables by plans of two steps: nothing
    # is worth generating code for, or planning twice.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOCAL: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # A pair's files are one task: each task of a small report is a tenth of a second of starts.
    "spark.sql.files.minPartitionNum": "1",
    # To open a file of a local disk costs little; by Spark's 4 MB 32 of them would be a task.
    "spark.sql.files.openCostInBytes": str(256 << 10),
    # Else Spark makes a task for each directory that it lists: one for each broker group.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # What is shuffled is compressed already.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.python.daemon.module": "spark.job.python_daemon",
    _JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""Further settings of a local master: two cores and 1 GB do a day of 200 broker groups."""
DISK_FULL: Final = (
    "free space where --out is and for scratch files (/tmp), or set SPARK_LOCAL_DIRS to a"
    " larger directory for scratch files"
)
_ROOT: Final = Path(__file__).resolve().parents[2]
_GONE: Final = "Answer from Java side is empty"
_REMEDIES: Final = {
    "OutOfMemoryError": "give it more memory: --conf spark.driver.memory=4g",
    "GC overhead limit": "give it more memory: --conf spark.driver.memory=4g",
    "No space left on device": DISK_FULL,
    "Disk quota exceeded": DISK_FULL,
    "Permission denied": "check the owner of --out and --dumps",
    _GONE: "the JVM was killed: is the machine short of memory?",
}
STOP_S: Final = 20.0
SPARK_ERRORS: Final = (PySparkException, Py4JError, ConnectionError)
"""What any call of Spark may raise; ConnectionError when its JVM died."""


class SessionError(Exception):
    """Spark does not start; the text says why and the way out."""


def start_session(
    master: str | None, settings: Mapping[str, str], log: Path, java_options: str = ""
) -> SparkSession:
    """A session. `master` is None under spark-submit; `settings` are the user's (--conf) and go
    before our own; `log` takes what our own JVM says; `java_options` are for the JVM of a local
    master. Raises SessionError."""
    conf = SparkConf()
    if master is not None:
        conf.setMaster(master)
    if _is_local(master):
        conf.setAll(list(LOCAL.items()))
        conf.set(_JAVA_OPTIONS, f"{LOCAL[_JAVA_OPTIONS]} {java_options}".rstrip())
        os.environ.update(worker_environment(os.environ))
    conf.setAll(list((NO_CALL_SITES | PLAIN_PLANS | dict(settings) | ALWAYS).items()))
    if conf.get("spark.app.name") is None:
        conf.setAppName("mqreport")
    try:
        spark = SparkSession(_context(conf, log))
    except SPARK_ERRORS as error:
        raise SessionError(f"Spark failed to start: {explain(error, log)}") from error
    _keep_off_stderr(spark.sparkContext)
    # A context that was there before us (spark-submit's) has not read our conf: the session has to.
    for name, value in (PLAIN_PLANS | dict(settings) | ALWAYS).items():
        if name in PLAIN_PLANS or name in ALWAYS:
            spark.conf.set(name, value)
    if spark.version != pyspark.__version__:
        found = f"SPARK_HOME={os.environ.get('SPARK_HOME', '')} is Spark {spark.version}"
        stop_session(spark)
        raise SessionError(f"{found}, PySpark is {pyspark.__version__}: unset SPARK_HOME")
    return spark


def _keep_off_stderr(context: SparkContext) -> None:
    """The accumulator server would write to stderr that the JVM ended; the failed job reports
    that."""
    server: Any = context._accumulatorServer
    server.handle_error = lambda _request, _address: _LOG.debug("no accumulators", exc_info=True)


def _is_local(master: str | None) -> bool:
    """Whether executors run within the driver's JVM: local, local[2], local[2,3], local[*]."""
    return master is not None and master.partition("[")[0] == "local"


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the JVM of a local master needs for its Python workers: this Python, and our modules."""
    path = [str(_ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    return {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(path)}


def ship_modules(spark: SparkSession, scratch: Path) -> None:
    """Gives executors our modules, as a zip in `scratch`; the workers of a local JVM of our own
    have them by `worker_environment`."""
    if _is_local(spark.sparkContext.master) and not is_under_spark_submit(os.environ):
        return
    package = _ROOT / "spark"
    path = scratch / "mqreport-modules.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(package.rglob("*.py")):
            archive.write(module, module.relative_to(_ROOT))
    spark.sparkContext.addPyFile(str(path))


def stop_session(spark: SparkSession, wait_s: float = STOP_S) -> None:
    """Ends the session. A JVM that we started has `wait_s` to exit by itself, then it is killed."""
    gateway: Any = SparkContext._gateway
    with contextlib.suppress(*SPARK_ERRORS):  # a JVM that died cannot be stopped
        spark.stop()
    if gateway is None or gateway.proc is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(wait_s)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _context(conf: SparkConf, log: Path) -> SparkContext:
    if is_under_spark_submit(os.environ):
        context = SparkContext.getOrCreate(conf)
        if _is_local(context.master) and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable  # what python3 is on PATH may lack our libraries
        return context
    with log.open("ab") as output:
        launch: Any = launch_gateway  # has no types
        try:
            gateway = launch(conf, {"stdout": output, "stderr": output})
        except OSError as error:
            raise SessionError(_not_launched(error)) from error
    return SparkContext(conf=conf, gateway=gateway)


def _not_launched(error: OSError) -> str:
    """PySpark makes a scratch directory, then runs a script of Spark's."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        way_out = "make room, or set TMPDIR to another directory"
        return f"cannot create a scratch directory: {error.filename}: {error.strerror}; {way_out}"
    way_out = "unset SPARK_HOME, or set it to a Spark of the version of PySpark"
    return f"cannot run {error.filename}: {error.strerror}; {way_out}"


def _last_words(log: Path) -> str:
    """The last lines of the JVM's log that look like errors, as one line; "" when there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    telling = [line for line in lines if re.search(r"error|exception|cannot|unable", line, re.I)]
    return " | ".join(" ".join(line.split()) for line in (telling or lines)[-3:])[:600]


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    """Finished and all tasks of the running jobs; (0, 0) without any, or when the JVM died: the
    failed job reports that."""
    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    except SPARK_ERRORS:
        return 0, 0
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def was_interrupted(error: BaseException) -> bool:
    """Whether `error` was raised while a KeyboardInterrupt was being handled. An interrupted call
    of py4j closes its connection to the JVM, so the clean-up that follows may fail like a dead
    JVM and hide the interrupt."""
    context = error.__context__
    while context is not None and not isinstance(context, KeyboardInterrupt):
        context = context.__context__
    return context is not None


def explain(error: Exception, log: Path) -> str:
    """One line for what Spark threw: its innermost cause, and the way out where one is known."""
    text = f"{error}\n{_last_words(log)}"
    if isinstance(error, ConnectionError):
        text += _GONE
    for sign, remedy in _REMEDIES.items():
        if sign in text:
            return f"{sign}; {remedy}"
    causes = re.findall(r"^Caused by: (.+)$", str(error), re.MULTILINE)
    reason = causes[-1] if causes else str(error).strip().partition("\n")[0]
    if "JAVA_GATEWAY_EXITED" in reason:
        reason = _last_words(log) or reason
    return " ".join(reason.split())[:600] or type(error).__name__
