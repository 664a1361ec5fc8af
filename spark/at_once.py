"""Several jobs of Spark at the same time, from threads of the driver.

A report of few lines is mostly planning, and of a large one the last tasks of each job leave
processors idle: while one job does so, another one works. Each job must write something else.
Knows neither tables nor stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.util import InheritableThread


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """What the jobs return, in their order. When all have ended, the first failure is raised.

    An interrupt ends the wait, not the jobs: they end with the session.
    """
    results: list[Any] = [None] * len(jobs)
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            results[number] = jobs[number]()
        except Exception as error:  # noqa: BLE001 - raised below, on the caller's thread
            failures.append(error)

    threads = [InheritableThread(run, args=(number,), daemon=True) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
