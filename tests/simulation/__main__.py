"""python -m tests.simulation --seed N [--count M]: one run with its events, or many in short."""

from __future__ import annotations

import argparse
import time

from tests.simulation.judge import Violation
from tests.simulation.schedule import Schedule


def main() -> int:
    """0: nothing was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=1, help="how many; 1 prints its events")
    arguments = parser.parse_args()
    if arguments.count == 1:
        return _one(arguments.seed)
    failed, elections, began = 0, 0, time.process_time()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Violation as violation:
            failed += 1
            print(f"seed {seed}: {str(violation)[:300]}")
        elections += schedule.judge.elections
    used = time.process_time() - began
    print(
        f"{arguments.count} schedules, {failed} violations, {elections} elections, {used:.1f} s CPU"
    )
    return 1 if failed else 0


def _one(seed: int) -> int:
    schedule = Schedule(seed, trace=True)
    try:
        schedule.run()
    except Violation as violation:
        schedule.world.say(f"VIOLATION: {violation}")
        return 1
    finally:
        print("\n".join(schedule.world.trace or ()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
