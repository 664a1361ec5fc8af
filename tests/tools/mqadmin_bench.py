"""Runs mqadmin in this process against a fake cluster and collects what it prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.tools.fake_cluster import MASTER, SLAVE, FakeCluster
from tools.command_line import CommandContext
from tools.mqadmin import main

OUTPUTS = Path(__file__).parent.parent / "golden" / "store-G" / "mqadmin-output"
GOLDEN_HOURS = 498660.50
"""What adm00.out shows under #Hour: hours since 1970, as the store had no message."""


@dataclass(frozen=True)
class Outcome:
    """What one run printed and returned."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON of a --json run; fails when it is not one value on one line."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


class Bench:
    """mqadmin with -n set to the cluster; waits between repetitions are counted, never done."""

    def __init__(self, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.waits: list[float] = []
        self.rounds = 1
        self.now_ms = int(GOLDEN_HOURS * 3_600_000)
        self._capsys = capsys

    def run(self, *arguments: str, servers: str | None = None) -> Outcome:
        """Run one command."""
        where = ["-n", servers or self.cluster.address] if arguments else []
        context = CommandContext(wait=self._wait, now_ms=lambda: self.now_ms)
        code = main([*arguments, *where], context)
        printed = self._capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    def run_json(self, *arguments: str) -> Any:
        """The data of a run with --json that must succeed."""
        outcome = self.run(*arguments, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.data

    def run_json_with_complaints(self, *arguments: str) -> Any:
        """The data of a run with --json that must succeed, whatever it says on stderr."""
        outcome = self.run(*arguments, "--json")
        assert outcome.code == 0
        return outcome.data

    def lines(self, *arguments: str) -> list[list[str]]:
        """The words of each line of a run that must succeed; own addresses as golden ones."""
        outcome = self.run(*arguments)
        assert outcome.code == 0, outcome.err
        return words(outcome.out.replace(self.cluster.address, MASTER))

    def _wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return len(self.waits) >= self.rounds


def golden(number: int) -> str:
    """What the original printed."""
    return (OUTPUTS / f"adm{number:02d}.out").read_text(encoding="utf-8")


def words(text: str) -> list[list[str]]:
    """The words of each line that is not empty; the slave's address is the master's here."""
    text = text.replace(SLAVE, MASTER).replace("127.0.0.1:9977", MASTER)
    return [line.split() for line in text.splitlines() if line.strip()]


def as_set(lines: Sequence[Sequence[str]]) -> set[tuple[str, ...]]:
    """Lines without their order, where the original prints in hash order."""
    return {tuple(line) for line in lines}
