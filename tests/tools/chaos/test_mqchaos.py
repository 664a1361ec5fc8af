"""mqchaos: whole runs with real brokers, what it says, and that it finds what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipc import clock
from tools.chaos import disk_faults, scratch_group
from tools.chaos.ack_log import Ack
from tools.chaos.chaos_options import ChaosOptions, ChaosResult
from tools.chaos.chaos_run import ChaosRun
from tools.chaos.power_cut import Loss, cut_power
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
        (["--replication", "none", "--faults", "cut"], "those of the link and rot need a slave"),
        (["--dir", "/proc/nowhere"], "cannot run in /proc/nowhere/seed-"),
        (["--seconds", "1"], "1.0 is not in the range x>=3"),
        (["--faults", "promote", "--replication", "async"], "promote needs --replication sync"),
        (["--soak", "5"], "5.0 is not in the range x>=40"),
    ],
)
def test_wrong_usage(
    usage_error: Callable[[list[str]], str], arguments: list[str], words: str
) -> None:
    assert words in usage_error(arguments)


LEVELS = [("async", "received"), ("async", "validated"), ("async", "flushed")]
LEVELS += [("sync", level) for _flush, level in LEVELS]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("seed", "flush", "level"),
    [pytest.param(41, *LEVELS[0], marks=pytest.mark.long), (42, *LEVELS[-1])],
)
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


@pytest.mark.long
@pytest.mark.timeout(400)
def test_clocks_descriptors_and_a_lossy_link(tmp_path: Path, proved: Callable[[str], None]) -> None:
    arguments = ["--seed", "8", "--seconds", "6", "--keep", "--dir", str(tmp_path), "--json"]
    ended = mqchaos(*arguments, "--faults", "clock_jump,fd_exhaustion,lossy")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["seeds_held"], summary["violations"]) == (1, [])
    assert set(summary["faults"]) == {"clock_jump", "fd_exhaustion", "lossy"}
    result = json.loads((tmp_path / "seed-8" / "result.json").read_text())
    delayed, *others = result["mixed"]
    assert re.match(r"[1-9]\d* delayed, [1-9]\d* came", delayed)
    names = [text.split()[0] for text in others]
    assert sorted(names) == ["TableChanges", "Transactions"]
    assert result["looked_at"] > 100
    assert (result["dishonest"], result["looked_up"]) == (0, 100)
    proved(f"mqchaos, clocks, descriptors, lossy link: {delayed}")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_slave_is_promoted_and_nothing_acknowledged_is_lost(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    arguments = ["--seed", "5", "--seconds", "4", "--keep", "--dir", str(tmp_path)]
    ended = mqchaos(*arguments, "--faults", "promote", "--slaves", "2", "--rate", "800")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads((tmp_path / "seed-5" / "result.json").read_text())
    assert len(result["rto_s"]) + result["refused_promotions"] == len(result["faults"]) == 1
    proved(f"mqchaos, a promotion: SEND_OK after {result['rto_s']} s")


@pytest.mark.long
@pytest.mark.timeout(2_000)
def test_a_soak_is_flat(tmp_path: Path, proved: Callable[[str], None]) -> None:
    ended = mqchaos("--seed", "3", "--soak", "600", "--keep", "--dir", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads((tmp_path / "seed-3" / "result.json").read_text())["figures"]
    assert all(figure["is_flat"] for figure in figures)
    proved(f"mqchaos --soak: {len(figures)} figures flat")


def test_brokers_and_mqchaos_mean_the_same_file() -> None:
    assert scratch_group._WALL_OFFSET_VARIABLE == clock.WALL_OFFSET_VARIABLE
    assert scratch_group._WALL_OFFSET.format == clock.WALL_OFFSET.format


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_lost_message_is_found(tmp_path: Path) -> None:
    """The clients' log claims one acknowledgement more than there was: a broker that lost it. And
    without disk faults there are no hooks for them."""
    run = ChaosRun(tmp_path, 3, options(), nothing)
    run._acks.answered(Ack(0, 5, 0, 1_000_000, 0))
    result = run.run()
    (text,) = result.violations
    assert text.startswith("lost: message 5 of producer 0, answered 0: queue 0 offset 1000000")
    assert json.loads((tmp_path / "result.json").read_text())["verdict"] == "1 violations"
    assert "DISK FAULTS" not in (tmp_path / "master" / "output.txt").read_text()
    assert not (tmp_path / "master" / "disk-faults").exists()


@pytest.mark.long
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


DISK = "power_cut,fsync_error,slow_fsync,full_disk,torn_tail,rot"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_seed_with_disk_faults_holds(tmp_path: Path, proved: Callable[[str], None]) -> None:
    """A failed sync, a power cut of both, and a flipped bit that is repaired, of a pair."""
    arguments = ["--seed", "32", "--seconds", "7", "--faults", DISK, "--keep", "--rate", "800"]
    arguments += ["--dir", str(tmp_path), "--flush", "sync", "--ack-level", "flushed"]
    ended = mqchaos(*arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    place = tmp_path / "seed-32"
    result = json.loads((place / "result.json").read_text())
    kinds = [(fault["kind"], fault["broker"]) for fault in result["faults"]]
    assert kinds == [("fsync_error", "master"), ("power_cut", "both"), ("rot", "slave")]
    assert "0" not in result["lost_to_power"]
    assert "DISK FAULTS ARE INJECTED" in (place / "master" / "output.txt").read_text()
    proved(f"mqchaos, disk faults: {ended.stdout.splitlines()[-2]}")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_sync_that_says_it_worked_and_did_not_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that forgets the second half of what was synced: SYNC_FLUSH loses what it promised."""

    def forget(root: Path, durable: Path, _draw: Callable[[], float], **_: object) -> Loss:
        for path in sorted((root / "commitlog").glob("[0-9]*")):
            kept = durable / f"{path.stat().st_ino}.disk"
            if kept.exists() and kept.stat().st_size:
                data = kept.read_bytes()
                end = len(data.rstrip(b"\0"))
                kept.write_bytes(data[: end // 2].ljust(len(data), b"\0"))
        return cut_power(root, durable, lambda: 0.0)

    monkeypatch.setattr(disk_faults, "cut_power", forget)
    changed = options(kinds=[FaultKind.POWER_CUT], flush="sync", seconds=4.0)
    result = ChaosRun(tmp_path, 6, changed, nothing).run()
    assert any(text.startswith("lost: message") for text in result.violations), result.violations


@pytest.mark.long
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize(("flush", "level"), LEVELS)
def test_a_hundred_seeds_with_disk_faults(
    tmp_path: Path, flush: str, level: str, proved: Callable[[str], None]
) -> None:
    arguments = ["--seed", "3000", "--seeds", "100", "-q", "--dir", str(tmp_path), "--faults", DISK]
    ended = mqchaos(*arguments, "--flush", flush, "--ack-level", level)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    proved(f"mqchaos, disk faults, {flush} flush, {level}: {ended.stdout.splitlines()[-1]}")
