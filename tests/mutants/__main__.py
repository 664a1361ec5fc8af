"""`python -m tests.mutants [--only NAME]`: applies each mutant in a copy and has its checks run,
or, with `--mqchaos OPTIONS`, bin/mqchaos with these: "own" for those that each mutant names.

Exit code 0: each was noticed; 1: one was not; 2: wrong usage, or a patch that does not apply.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutants.mutant import Mutant, MutantError, load_mutants
from tests.mutants.mutant_runs import MutantTree, Outcome, break_all, judge_all


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="one of them; repeatable")
    parser.add_argument(
        "--mqchaos", metavar="OPTIONS", help="run bin/mqchaos instead of the checks"
    )
    arguments = parser.parse_args()
    only, chaos = arguments.only, arguments.mqchaos
    try:
        mutants = load_mutants()
        if only:
            known = {mutant.name: mutant for mutant in mutants}
            if unknown := set(only) - known.keys():
                raise MutantError(
                    f"no mutant {', '.join(sorted(unknown))}; there are: {', '.join(known)}"
                )
            mutants = [known[name] for name in only]
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            tree = MutantTree(Path(directory) / "tree")
            if chaos is None:
                outcomes = judge_all(tree, mutants, _say)
            else:
                outcomes = break_all(tree, mutants, chaos, _say)
    except (MutantError, OSError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    noticed = sum(outcome.has_failed for outcome in outcomes.values())
    print(f"{noticed} of {len(outcomes)} mutants were noticed")
    return 0 if noticed == len(outcomes) else 1


def _say(mutant: Mutant, outcome: Outcome) -> None:
    print(f"{'noticed' if outcome.has_failed else 'NOT NOTICED':12} {mutant.name}", flush=True)
    if not outcome.has_failed or outcome.violations:
        print(outcome.violations or outcome.end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
