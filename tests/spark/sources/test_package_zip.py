"""The zip for --py-files: it is whole, and executors that have nothing else of ours read a topic.

The cluster is Spark's own on this machine: two executors in processes of their own, which are not
told where the checkout is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.installation import INSTALL_DIRECTORY
from spark.job.java_home import find_java
from spark.sources import package_zip
from spark.sources.registration import FORMATS
from tests.spark.scratch_home import scratch_home
from tests.spark.sources.test_rocketmq import TOPIC, send
from tests.support.our_broker import OurBroker

_IMPORTS = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for module, name in {formats!r}:
    getattr(importlib.import_module(module), name)
print(importlib.import_module("spark.sources.stream").__file__)
"""
_READS = """
import sys
from pyspark.sql import SparkSession

archive, names, topic, scratch = sys.argv[1:]
sys.path.insert(0, archive)
from spark.sources.registration import register

builder = SparkSession.builder.master("local-cluster[2,1,512]").config("spark.ui.enabled", "false")
builder = builder.config("spark.submit.pyFiles", archive).config("spark.local.dir", scratch)
builder = builder.config("spark.executor.memory", "512m")
java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
builder = builder.config("spark.executor.extraJavaOptions", java)
spark = builder.config("spark.driver.extraJavaOptions", java).getOrCreate()
register(spark)
table = spark.read.format("rocketmq").option("nameServers", names).option("topic", topic).load()


def places(_rows):
    import os
    import spark.sources

    yield os.environ["SPARK_EXECUTOR_DIRS"], spark.sources.__file__


found = set()
while len(found) < 2:  # The second executor comes when it comes.
    found |= set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(places).collect())
print(*{file for _, file in found})
print("COUNT", table.count(), table.select("queue_id", "queue_offset").distinct().count())
spark.stop()
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "sources.zip"
    assert package_zip.main([str(path)]) == 0
    return path


def test_every_format_is_imported_from_it_alone(archive: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-c", _IMPORTS.format(formats=FORMATS), str(archive)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{archive}/spark/sources/stream.py"


def test_it_is_the_same_each_time(archive: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    count = package_zip.write_zip(again)
    assert again.read_bytes() == archive.read_bytes()
    names = zipfile.ZipFile(again).namelist()
    assert len(names) == len(set(names)) == count
    assert {"spark/__init__.py", "spark/sources/rocketmq.py"} <= set(names)


def test_names_and_places_that_do_not_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        package_zip.main([str(tmp_path / "sources.egg")])
    assert "sources.egg: Spark takes a file for modules whose name ends in .zip" in (
        capsys.readouterr().err
    )
    assert package_zip.main([str(tmp_path / "nowhere" / "a.zip")]) == 1
    assert f"{tmp_path}/nowhere/a.zip: No such file or directory" in capsys.readouterr().err


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that cannot be read; a target that cannot be replaced; a program that is stopped."""
    (tmp_path / "home" / "spark").mkdir(parents=True)
    (tmp_path / "home" / "spark" / "one.py").write_text("1")
    (tmp_path / "home" / "spark" / "two.py").symlink_to(tmp_path / "gone")
    target = tmp_path / "out" / "a.zip"
    target.parent.mkdir()
    with pytest.raises(FileNotFoundError, match=r"two\.py"):
        package_zip.write_zip(target, tmp_path / "home")
    assert not list(target.parent.iterdir())
    (tmp_path / "home" / "spark" / "two.py").unlink()
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        package_zip.write_zip(target, tmp_path / "home")
    assert list(target.parent.iterdir()) == [target]
    target.rmdir()

    def stopped(home: Path) -> Iterator[Path]:
        yield home / "spark" / "one.py"
        raise KeyboardInterrupt

    monkeypatch.setattr(package_zip, "modules", stopped)
    with pytest.raises(KeyboardInterrupt):
        package_zip.write_zip(target, tmp_path / "home")
    assert not list(target.parent.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_two_executors_read_a_topic(archive: Path, tmp_path: Path) -> None:
    with OurBroker(tmp_path / "broker") as broker:
        broker.start()
        with broker.client() as client:
            send(client, range(200))
        names = f"127.0.0.1:{broker.ports['namesrv']}"
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"JAVA_HOME": str(find_java(os.environ).home)}
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= {"SPARK_HOME": str(scratch_home(tmp_path))}
        command = [sys.executable, "-I", "-c", _READS, str(archive), names, TOPIC]
        done = subprocess.run(
            [*command, str(tmp_path / "scratch")],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert list((tmp_path / "spark-home" / "work").glob("app-*"))
    places, counts = done.stdout.splitlines()[-2:]
    assert str(INSTALL_DIRECTORY) not in places
    assert "sources.zip" in places
    assert counts == "COUNT 200 200"
