"""register(spark): versions that are too old, settings, and workers that lack the package."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from spark.sources import registration
from spark.sources.data_source import ConfiguredSource
from spark.sources.errors import OptionError
from spark.sources.losses import LossRule
from spark.sources.options import Connection
from spark.sources.queue_reader import ReadRules
from spark.sources.registration import PUSHDOWN, TooOldError, check_versions, register
from spark.sources.rocketmq import BatchReader, RangeTask, ReadPlan
from spark.sources.rows import SCHEMA
from tests.spark.sources.fake_queues import pickled

SECRET = "open sesame"


class FakeSession:
    """What register asks a session for."""

    def __init__(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.found: list[type[ConfiguredSource]] = []
        self.set: dict[str, str] = {}
        self.conf = SimpleNamespace(getAll=named, set=self.set.__setitem__)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: SimpleNamespace(getAll=list), master="local[*]", pythonExec="python3"
        )
        self.dataSource = SimpleNamespace(register=self.found.append)

    def registered(self) -> dict[str, type[ConfiguredSource]]:
        session: Any = self
        register(session)
        return {kind.name(): kind for kind in self.found}


def plan() -> ReadPlan:
    connection = Connection(("127.0.0.1:1",))
    return ReadPlan(connection, ("T",), ReadRules(LossRule()), 1, 1, 1)


class TestPython:
    @pytest.mark.parametrize(
        ("master", "named", "expected"),
        [
            ("local", "", sys.executable),
            ("local[2]", "", sys.executable),
            ("local[2]", "/opt/python", "python3"),
            ("local-cluster[2,1,512]", "", "python3"),
            ("spark://local:7077", "", "python3"),
        ],
    )
    def test_workers_of_this_machine_run_it(
        self, monkeypatch: pytest.MonkeyPatch, master: str, named: str, expected: str
    ) -> None:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        if named:
            monkeypatch.setenv("PYSPARK_PYTHON", named)
        session = FakeSession()
        session.sparkContext.master = master
        session.registered()
        assert session.sparkContext.pythonExec == expected


class TestSettings:
    def test_become_defaults_that_nobody_sees(self) -> None:
        session = FakeSession(
            spark_rocketmq_accessKey="me",
            spark_rocketmq_secretKey=SECRET,
            spark_rocketmq_nameServers="n:1",
        )
        kind = session.registered()["rocketmq"]
        source: Any = pickle.loads(pickled(kind))({"topic": "T"})
        connection = source.checked_options().connection()
        assert connection.credentials.secret_key == SECRET
        assert SECRET not in repr(source) + repr(kind.DEFAULTS) + str(vars(source))
        assert SECRET not in repr(source.reader(SCHEMA)) + repr(source.reader(SCHEMA).plan)

    def test_one_session_does_not_see_anothers(self) -> None:
        FakeSession(spark_rocketmq_nameServers="n:1").registered()
        other: Any = FakeSession().registered()["rocketmq"]({"topic": "T"})
        with pytest.raises(OptionError, match="no name server"):
            other.schema()

    def test_pushdown(self) -> None:
        """Spark refuses a reader that takes filters where the session does not hand them over."""
        session = FakeSession()
        source: Any = session.registered()["rocketmq"]({"topic": "T", "nameServers": "n:1"})
        assert session.set == {PUSHDOWN: "true"}
        assert hasattr(source.reader(SCHEMA), "pushFilters")
        assert type(source.reader(SCHEMA)) is not BatchReader
        session = FakeSession(**{PUSHDOWN.replace(".", "_"): "false"})
        source = session.registered()["rocketmq"]({"topic": "T", "nameServers": "n:1"})
        assert session.set == {}
        assert type(source.reader(SCHEMA)) is BatchReader


class TestVersions:
    def test_these_are_new_enough(self) -> None:
        check_versions()

    def test_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registration, "PYTHON", (4, 0))
        with pytest.raises(TooOldError, match=r"Python 3\.\d+\.\d+ is too old: .* 4\.0 or later"):
            check_versions()

    def test_pyspark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pyspark, "__version__", "4.1.2")
        with pytest.raises(TooOldError, match=r"PySpark 4\.1\.2 is too old: .* 4\.2 or later"):
            check_versions()

    def test_a_development_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pyspark, "__version__", "4.3.0.dev1")
        check_versions()

    def test_no_pyarrow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(TooOldError, match=r"PyArrow cannot be imported .* pip install"):
            check_versions()

    def test_the_module_itself_needs_nothing(self) -> None:
        """It must be imported to say so."""
        code = "import spark.sources.registration, sys; assert 'pyspark' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)


def test_a_worker_without_the_package(tmp_path: Path) -> None:
    """It says what is missing, and the way out."""
    (tmp_path / "task").write_bytes(pickled(RangeTask(plan(), SCHEMA)))
    code = f"import pickle; pickle.loads(open({str(tmp_path / 'task')!r}, 'rb').read())"
    environment = {"PYTHONPATH": str(Path(pyspark.__file__).parents[1]), "PYTHONSAFEPATH": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    last = ended.stderr.strip().splitlines()[-1]
    assert "an executor cannot import spark.sources.rocketmq (No module named 'spark'" in last
    assert "--py-files" in last
    assert "pip install" in last


def test_a_worker_with_the_package() -> None:
    task = RangeTask(plan(), SCHEMA)
    copy: RangeTask = pickle.loads(pickled(task))
    assert copy.plan == task.plan
    assert copy.schema == task.schema
