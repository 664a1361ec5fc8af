"""The files that share a session of Spark, or Java's clients, are there, and use it; in which order
files are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("xdist")

from tests.support.one_session import _SHARING, _WITH_CLIENTS, _WITH_SPARK, OneSession
from tests.support.work_order import LONGEST, in_turn

_ROOT = Path(__file__).resolve().parent.parent


def test_every_file_that_uses_the_session_shares_it() -> None:
    using = {
        str(path.relative_to(_ROOT))
        for path in (_ROOT / "tests/spark").rglob("test_*.py")
        if "spark: SparkSession" in path.read_text(encoding="utf-8")
    }
    assert using == _WITH_SPARK


def test_every_file_with_a_client_of_java_shares_its_jvms() -> None:
    asking = re.compile(r"\b(client: Client|clients: |drivers: |cluster: Cluster|another_broker: )")
    using = {
        str(path.relative_to(_ROOT))
        for path in (_ROOT / "tests/interop").glob("test_*.py")
        if asking.search(path.read_text(encoding="utf-8"))
    }
    one, other = _WITH_CLIENTS
    assert using == one | other
    assert not one & other


def test_each_set_is_one_piece_of_work() -> None:
    def scope(file: str) -> str:
        found: str = OneSession._split_scope(OneSession.__new__(OneSession), f"{file}::test[1]")
        return found

    for files in (_WITH_SPARK, *_WITH_CLIENTS):
        assert len({scope(file) for file in files}) == 1
    assert len({scope(file) for file in _SHARING}) == 3
    other = "tests/broker/test_twins.py"
    assert scope(other) == other


def test_the_longest_files_are_there() -> None:
    assert [name for name in LONGEST if not (_ROOT / "tests" / name).is_file()] == []


def test_long_files_come_first_and_kinds_take_turns() -> None:
    usual = ["bench/test_a.py", "broker/test_b.py", "faults/test_c.py", "faults/test_d.py"]
    usual += ["interop/test_tls.py", "spark/test_e.py", "store/test_f.py", "tools/test_g.py"]
    assert in_turn(usual) == [
        *("interop/test_tls.py", "bench/test_a.py", "faults/test_c.py", "tools/test_g.py"),
        *("spark/test_e.py", "faults/test_d.py", "broker/test_b.py", "store/test_f.py"),
    ]
