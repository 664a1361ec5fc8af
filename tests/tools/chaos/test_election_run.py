"""mqchaos --controller: whole runs with real brokers, and that what is wrong is found in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.linearizability.checker import find_go, judge
from tools.chaos.election_options import ElectionOptions
from tools.chaos.election_schedule import ElectionFault
from tools.chaos.election_series import ElectionSeries
from tools.chaos.history import Append, History

ROOT = Path(__file__).resolve().parents[3]


def mqchaos(*arguments: str, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mqchaos", "--controller", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--faults", "kill_master,flood"], "'flood' is not a valid ElectionFault; the kinds are"),
        (["--faults", "kill_etcd"], "no kind of fault is left: those of etcd need a group with"),
        (["--controllers", "3"], "several controllers need a store that they share: --etcd 3"),
        (["--conf", "flushDiskType"], "'flushDiskType' is not key=value"),
    ],
)
def test_wrong_usage(
    usage_error: Callable[[list[str]], str], arguments: list[str], words: str
) -> None:
    assert words in usage_error(["--controller", *arguments])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_seed_holds(tmp_path: Path, proved: Callable[[str], None]) -> None:
    arguments = ["--seed", "7", "--count", "2", "--rate", "600", "--keep", "--dir", str(tmp_path)]
    ended = mqchaos(*arguments, "--faults", "kill_master,cut_master,elect")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    place = tmp_path / "seed-7"
    result = json.loads((place / "result.json").read_text())
    assert result["verdict"] == "held"
    assert all(fault["has_elected"] for fault in result["faults"])
    assert result["epochs"] > len(result["faults"])
    lines = [json.loads(line) for line in (place / "history.jsonl").read_text().splitlines()]
    answered = [line for line in lines if line["op"] == "append" and line["return"] is not None]
    assert len(answered) == result["codes"]["0"] > 500
    assert result["looked_at"] > 50
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["seeds_held"], summary["violations"]) == (1, [])
    proved(f"mqchaos --controller: {ended.stdout.splitlines()[-4]}")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_controllers_over_etcd(tmp_path: Path, proved: Callable[[str], None]) -> None:
    if shutil.which("etcd") is None:
        pytest.skip("needs etcd on the PATH (Debian's package etcd-server)")
    arguments = ["--seed", "8", "--count", "3", "--rate", "600", "--dir", str(tmp_path)]
    kinds = "kill_controller,kill_etcd,kill_master_and_controller"
    ended = mqchaos(*arguments, "--etcd", "3", "--faults", kinds)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    proved(f"mqchaos --controller --etcd 3: {ended.stdout.splitlines()[-4]}")


def test_only_groups_whose_disks_fill_have_hooks() -> None:
    """They make starts slower, which is measured."""
    with_them = ElectionOptions(kinds=list(ElectionFault))
    found = [seed for seed in range(0, 500, 5) if with_them.shape(seed).fills_disks]
    assert 2 < len(found) < 50
    assert all(with_them.shape(seed + 4).fills_disks for seed in found)
    kinds = [kind for kind in ElectionFault if kind is not ElectionFault.FULL_DISK]
    assert not any(ElectionOptions(kinds=kinds).shape(seed).fills_disks for seed in found)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_full_disk(tmp_path: Path, proved: Callable[[str], None]) -> None:
    arguments = ["--seed", "11", "--count", "2", "--keep", "--dir", str(tmp_path)]
    ended = mqchaos(*arguments, "--faults", "full_disk")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    logs = [path.read_text() for path in tmp_path.glob("group-11/broker-*/logs/**/*.log")]
    assert any("No space left on device" in text for text in logs)
    proved(f"mqchaos --controller: {ended.stdout.splitlines()[-1]}")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_lies_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients' list claims an answer that nobody gave, and a consumer what nobody showed; the
    broken group is not used for the next seed."""
    acknowledged = History.acknowledged

    def claims_one_more(history: History) -> list[Append]:
        lie = Append(0, 5, 0, 1.0, ("127.0.0.11", 1), 2.0, 0, 1_000_000, 0)
        return [*acknowledged(history), lie]

    options = ElectionOptions(kinds=[ElectionFault.CUT_LINK], faults=1, rate=400)
    with ElectionSeries(tmp_path, options, keeps=False, say=lambda _line: None) as series:
        with monkeypatch.context() as patched:
            patched.setattr(History, "acknowledged", claims_one_more)
            wrong = series.run(0)
        held = series.run(1)
    (lost, *others) = wrong.violations
    assert lost.startswith("lost: message 5 of producer 0, answered 0: queue 0 offset 1000000")
    assert all(text.startswith("epoch ") for text in others)
    assert held.violations == []
    assert (tmp_path / "group-0" / "broker-1").exists()
    assert not (tmp_path / "group-1").exists()


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_twenty_runs_are_linearizable(tmp_path: Path, proved: Callable[[str], None]) -> None:
    if find_go() is None:
        pytest.skip("needs Go")
    arguments = ["--seed", "100", "--seeds", "20", "-q", "--keep", "--dir", str(tmp_path)]
    ended = mqchaos(*arguments, timeout_s=7_000)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    histories = sorted(tmp_path.glob("seed-*/history.jsonl"))
    assert len(histories) == 20
    judged = judge(histories)
    assert judged.returncode == 0, judged.stdout
    assert judged.stdout.count(": linearizable, 4 queues, ") == 20
    operations = sum(int(line.split()[-2]) for line in judged.stdout.splitlines())
    proved(f"mqchaos --controller: 20 histories of {operations:,} operations are linearizable")


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_two_hundred_seeds(tmp_path: Path, proved: Callable[[str], None]) -> None:
    arguments = ["--seed", "5000", "--seeds", "200", "-q", "--dir", str(tmp_path)]
    ended = mqchaos(*arguments, timeout_s=14_000)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for line in ended.stdout[ended.stdout.index("| fault |") :].splitlines():
        proved(f"mqchaos --controller: {line}")
