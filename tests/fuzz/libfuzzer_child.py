"""One target under atheris (libFuzzer with coverage of Python code), in a process of its own.

    python -m tests.fuzz.libfuzzer_child TARGET FINDINGS SEED OPTION... DIRECTORY...

Options and directories are libFuzzer's. The rooms are traced from their import on, so nothing of
them may be imported before. Findings are written to FINDINGS, each kind once, and the run goes on.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

_ROOMS = ["conf", "ipc", "remoting", "store", "ha", "namesrv", "broker", "tools", "spark"]
_OWN_SHARE = 0.6
"""Of changes made by the target's own strategy; the others are libFuzzer's."""


def main() -> None:
    """Never returns."""
    name, findings, _seed, *options = sys.argv[1:]
    with atheris.instrument_imports(include=_ROOMS, enable_loader_override=False):
        from tests.fuzz.table import find_target

        target = find_target(name)
    from tests.fuzz.corpus import save_finding
    from tests.fuzz.execution import Execution

    execution = Execution(target).__enter__()
    tokens = target.tokens()
    known: set[str] = set()

    def run(data: bytes) -> None:
        finding = execution.run(data)
        if finding is not None and finding.key not in known:
            known.add(finding.key)
            save_finding(Path(findings), data, finding)

    def change(data: bytes, largest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < _OWN_SHARE:
            return target.mutate(rng, data, tokens)[:largest]
        return bytes(atheris.Mutate(data, largest))

    atheris.Setup([sys.argv[0], *options], run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
