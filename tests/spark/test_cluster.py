"""The report on a cluster: the command of docs/sla_at_scale.md, as it stands there.

Long, as it needs Maven's jars, an S3 server and three JVMs: Spark's local-cluster mode starts a
master, a worker and two executor processes, which get our modules and their Python as they would
on other machines. Dumps are read and results written over s3a. The truth is the same report of one
local process.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from spark.job.java_home import JavaError, find_java
from tests.interop.java_peers import fetched
from tests.spark.generate_dumps import Shape, generate
from tests.spark.object_store import CREDENTIALS, ObjectStore, missing, object_store
from tests.spark.scratch_home import scratch_home

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "sla_at_scale.md"
DATE: Final = datetime.date(2026, 1, 15)
EXECUTORS: Final = 2
RUN_S: Final = 900.0
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * RUN_S),
    pytest.mark.skipif(not shutil.which("mvn"), reason="needs mvn on the PATH"),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


def commands() -> list[str]:
    """What the page has a cluster's operator type: jars, Python, report."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## On a cluster\n")[2]
    return re.findall(r"^```sh\n(.*?)^```$", text.partition("\n## ")[0], re.M | re.S)


def jars() -> Path:
    """Fetched by the page's first command, once for a checkout."""
    maven = shlex.split(commands()[0].replace("$PWD/s3a-jars", "JARS"))

    def fetch(part: Path) -> list[str]:
        words = [word.replace("JARS", str(part)) for word in maven]
        return ["/bin/sh", "-c", f"cd {shlex.quote(str(ROOT))} && {shlex.join(words)}"]

    return fetched("lib-s3a", fetch)


def python_archive(path: Path) -> None:
    """What `venv-pack` would make, small: a Python that is this one."""
    program = path.with_name("python")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(program, "bin/python")


def on_the_cluster(scratch: Path, store: ObjectStore) -> subprocess.CompletedProcess[str]:
    """Runs the page's last command with what stands for this cluster in its variables."""
    java = find_java(os.environ)
    events = scratch / "events"
    events.mkdir()
    python_archive(scratch / "venv.tar.gz")
    settings = {
        "spark.hadoop.fs.s3a.endpoint": store.url,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    size = "--driver-memory 1g --executor-cores 1 --executor-memory 1g"
    variables = {
        "SPARK_HOME": str(scratch_home(scratch)),
        "JAVA_HOME": str(java.home),
        "MASTER": f"local-cluster[{EXECUTORS},1,1024]",
        "SIZE": size,
        "S3A_JARS": str(jars()),
        "STORE": " ".join(f"--conf {name}={value}" for name, value in settings.items()),
        "VENV": str(scratch / "venv.tar.gz"),
        "PYTHON": sys.executable,
        "DATE": str(DATE),
        "DUMPS": f"s3a://{store.bucket}/metrics",
        "OUT": f"s3a://{store.bucket}/reports",
        "SPARK_LOCAL_DIRS": str(scratch),
    }
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        ["/bin/sh", "-ec", commands()[-1]],
        cwd=ROOT,
        env=kept | CREDENTIALS | variables,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def locally(dumps: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "spark", "--date", str(DATE), "--master", "local[2]"]
    return subprocess.run(
        [*words, "--dumps", str(dumps), "--out", str(out)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def told(log: str) -> str:
    """What the report says, and why Spark failed, of all that Spark says."""
    telling = r"mqreport: |Caused by|ERROR|Error"
    return "\n".join(line for line in log.splitlines() if re.search(telling, line))[:4000]


def executors(events: Path) -> dict[str, int]:
    """Executor -> how many tasks it finished well."""
    (log,) = events.iterdir()
    found: dict[str, int] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerExecutorAdded":
            found.setdefault(event["Executor ID"], 0)
        elif event["Event"] == "SparkListenerTaskEnd":
            well = event["Task End Reason"]["Reason"] == "Success"
            found[event["Task Info"]["Executor ID"]] += well
    return found


def evidence(text: bytes) -> dict[str, Any]:
    """What a date's evidence says of its inputs."""
    return dict(json.loads(text)["inputs"])


def test_two_executors_and_an_object_store(tmp_path: Path, proved: Callable[[str], None]) -> None:
    try:
        find_java(os.environ)
    except JavaError as error:
        pytest.skip(f"Spark has no Java: {error}")
    dumps, out, day = tmp_path / "dumps", tmp_path / "out", f"report/dt={DATE}"
    generate(Shape(dumps, DATE, groups=6, replicas=2, days=1, interval_s=60, seed=3))
    local = locally(dumps, out)
    with object_store(tmp_path / "moto.log", "ops") as store:
        store.upload(dumps, "metrics")
        done = on_the_cluster(tmp_path, store)
        assert local.returncode == 1, local.stderr
        # spark-submit puts the driver's stderr into its stdout.
        assert done.returncode == 1, told(done.stdout + done.stderr)
        keys = store.keys("reports/")
        for name in ("summary.json", "replicas.csv", "incidents.csv"):
            there = store.read(f"reports/{day}/{name}")
            assert there == (out / day / name).read_bytes(), name
        (link,) = (key for key in keys if re.search(r"/evidence/\d+_", key))
        (own,) = (out / "evidence").glob("0*.json")
        assert evidence(store.read(link)) == evidence(own.read_bytes())
        tables = {key.split("/")[2] for key in keys if key.startswith("reports/parquet/")}
    assert tables == {path.name for path in (out / "parquet").iterdir()}
    ran = executors(tmp_path / "events")
    assert len(ran) == EXECUTORS, ran
    assert min(ran.values()) > 0, ran
    proved("a report on two executors, from S3 to S3: the same as that of one process")
