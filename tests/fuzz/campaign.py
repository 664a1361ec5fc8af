"""A campaign: one target for some seconds, with coverage where atheris is installed.

With atheris (libFuzzer) a child process is guided by the coverage of the rooms' Python code.
Without it, inputs are changed by our own strategies from a seed: the same seed gives the same
inputs, and nothing tells which of them reached something new.
"""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.corpus import CRASHES, inputs_of, read_inputs, save_finding
from tests.fuzz.execution import Execution, Finding
from tests.fuzz.target import Target

_ROOT = Path(__file__).parents[2]
_WALL_LIMIT_S = 60
_MEMORY_LIMIT_MB = 1_500


@dataclass
class Outcome:
    """What a campaign did. edges: None without coverage."""

    executions: int = 0
    seconds: float = 0.0
    edges: int | None = None
    found: list[bytes] = field(default_factory=list)
    """Inputs that reached something new."""
    crashes: dict[str, Path] = field(default_factory=dict)
    """Key of a finding to its saved input."""


def has_coverage() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def run_guided(target: Target, seconds: float, seed: int) -> Outcome:
    """With atheris."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        root = Path(scratch)
        new, old, findings = root / "new", root / "old", root / "findings"
        for directory in (new, old, findings):
            directory.mkdir()
        for number, data in enumerate(inputs_of(target)):
            (old / str(number)).write_bytes(data)
        lines = "".join(map(_token_line, target.tokens()))
        (root / "tokens").write_text(lines or '# none\n"a"\n')
        began = time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.fuzz.libfuzzer_child", target.name, str(findings)),
                *(str(seed), f"-seed={seed or 1}", f"-max_total_time={max(1, round(seconds))}"),
                *(f"-max_len={target.largest}", f"-dict={root / 'tokens'}", "-reload=0"),
                f"-report_slow_units={_WALL_LIMIT_S}",  # What is slow is judged by processor time.
                *("-print_final_stats=1", "-detect_leaks=0", f"-timeout={_WALL_LIMIT_S}"),
                *(f"-rss_limit_mb={_MEMORY_LIMIT_MB}", f"-artifact_prefix={findings}/"),
                *(str(new), str(old)),
            ],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        outcome = _parsed(done.stderr, time.monotonic() - began)
        outcome.found = read_inputs(new)
        _collect(target, findings, outcome)
    if done.returncode and not outcome.crashes:
        raise RuntimeError(f"{target.name}: exit {done.returncode}\n{done.stderr[-4000:]}")
    return outcome


def _token_line(token: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in token[:60]) + '"\n' if token else ""


def _parsed(text: str, seconds: float) -> Outcome:
    executed = re.findall(r"stat::number_of_executed_units:\s+(\d+)", text)
    steps = re.findall(r"^#(\d+)\s", text, re.MULTILINE)
    edges = re.findall(r" cov: (\d+)", text)
    count = int((executed or steps or ["0"])[-1])
    return Outcome(count, seconds, int(edges[-1]) if edges else 0)


def _collect(target: Target, findings: Path, outcome: Outcome) -> None:
    for path in findings.iterdir():
        if path.suffix == ".txt":
            continue
        told = path.with_suffix(".txt")
        key, _, text = (
            told.read_text() if told.exists() else f"{path.name.partition('-')[0]}\n\n"
        ).partition("\n")
        finding = Finding(key, text.strip())
        saved = save_finding(CRASHES / target.name, path.read_bytes(), finding)
        outcome.crashes[key] = saved


def run_plain(target: Target, seconds: float, seed: int) -> Outcome:
    """Without coverage: seeded changes of the corpus, for so long of this process' time."""
    outcome = Outcome()
    rng = random.Random(seed)
    tokens = target.tokens()
    inputs = inputs_of(target) or [b""]
    began = time.monotonic()
    with Execution(target) as execution:
        while time.monotonic() - began < seconds:
            data = rng.choice(inputs)
            for _ in range(rng.choice((1, 1, 2, 4))):
                data = target.mutate(rng, data, tokens)[: target.largest]
            finding = execution.run(data)
            if finding is not None and finding.key not in outcome.crashes:
                saved = save_finding(CRASHES / target.name, data, finding)
                outcome.crashes[finding.key] = saved
        outcome.executions = execution.count
    outcome.seconds = time.monotonic() - began
    return outcome
