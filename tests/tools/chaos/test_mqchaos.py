"""mqchaos: whole runs with real brokers, what it says, and that it finds what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.chaos.ack_log import Ack
from tools.chaos.chaos_run import ChaosOptions, ChaosResult, ChaosRun
from tools.chaos.schedule import FaultKind

ROOT = Path(__file__).resolve().parents[3]


def mqchaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mqchaos", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


def options(**changes: object) -> ChaosOptions:
    standard: dict[str, object] = {
        "seconds": 3.0,
        "kinds": [FaultKind.STOP],
        "flush": "async",
        "replication": "none",
        "ack_level": "received",
        "rate": 800.0,
    }
    return ChaosOptions(**{**standard, **changes})  # type: ignore[arg-type]


def nothing(_line: str) -> None:
    pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--faults", "kill,flood"], "'flood' is not a valid FaultKind; the kinds are kill,"),
        (["--replication", "none", "--faults", "cut"], "those of the link need a slave"),
        (["--dir", "/proc/nowhere"], "cannot run in /proc/nowhere/seed-"),
        (["--seconds", "1"], "1.0 is not in the range x>=3"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    ended = mqchaos(*arguments)
    assert ended.returncode == 2
    assert words in " ".join(ended.stderr.split())


LEVELS = [("async", "received"), ("async", "validated"), ("async", "flushed")]
LEVELS += [("sync", level) for _flush, level in LEVELS]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("seed", "flush", "level"), [(41, *LEVELS[0]), (42, *LEVELS[-1])])
def test_a_seed_holds(
    tmp_path: Path, seed: int, flush: str, level: str, proved: Callable[[str], None]
) -> None:
    """A synchronous pair with every kind of fault, as a user runs it."""
    arguments = ["--seed", str(seed), "--seconds", "6", "--keep", "--dir", str(tmp_path)]
    ended = mqchaos(*arguments, "--flush", flush, "--ack-level", level)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (line,) = re.findall(r"^seed \d+: held; .*", ended.stdout, re.MULTILINE)
    place = tmp_path / f"seed-{seed}"
    result = json.loads((place / "result.json").read_text())
    assert result["verdict"] == "held"
    answers = (place / "acks.log").read_text().splitlines()
    assert len(answers) == sum(result["codes"].values()) > 500
    assert (place / "timeline.svg").read_text().startswith("<svg")
    proved(f"mqchaos, {flush} flush, {level}: {line}")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_lost_message_is_found(tmp_path: Path) -> None:
    """The clients' log claims one acknowledgement more than there was: a broker that lost it."""
    run = ChaosRun(tmp_path, 3, options(), nothing)
    run._acks.answered(Ack(0, 5, 0, 1_000_000, 0))
    result = run.run()
    (text,) = result.violations
    assert text.startswith("lost: message 5 of producer 0, answered 0: queue 0 offset 1000000")
    assert json.loads((tmp_path / "result.json").read_text())["verdict"] == "1 violations"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_damaged_log_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of the master's log is changed behind the broker's back."""
    judge = ChaosRun._judge_files

    def damage(run: ChaosRun) -> None:
        for broker in run._group.brokers:
            run._stop(broker)
        path = sorted((run._group.master.store / "commitlog").glob("[0-9]*"))[0]
        data = bytearray(path.read_bytes())
        data[5_000] ^= 0x40
        path.write_bytes(data)
        monkeypatch.setattr(run, "_stop", nothing)
        judge(run)

    monkeypatch.setattr(ChaosRun, "_judge_files", damage)
    result: ChaosResult = ChaosRun(tmp_path, 4, options(), nothing).run()
    assert [text.partition(":")[0] for text in result.violations] == ["store.check of master"]


@pytest.mark.long
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize(("flush", "level"), LEVELS)
def test_two_hundred_seeds(
    tmp_path: Path, flush: str, level: str, proved: Callable[[str], None]
) -> None:
    arguments = ["--seed", "1000", "--seeds", "200", "-q", "--dir", str(tmp_path)]
    ended = mqchaos(*arguments, "--flush", flush, "--ack-level", level)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    proved(f"mqchaos, {flush} flush, {level}: {ended.stdout.splitlines()[-1]}")
