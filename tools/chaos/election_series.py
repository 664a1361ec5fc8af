"""ElectionSeries: seed after seed on groups with controllers, several seeds on each group.

A group whose run ended with a violation is not used again: its files stay, beside the seed's.
Runs on the caller's thread.

Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tools.chaos.election_options import SEEDS_A_GROUP, ElectionOptions, ElectionResult
from tools.chaos.election_run import ElectionRun, Say
from tools.chaos.election_summary import result_line
from tools.chaos.member_group import GroupShape, MemberGroup
from tools.chaos.network import NetworkError
from tools.chaos.scratch_process import ChaosError

MakeGroup = Callable[[Path, GroupShape], MemberGroup]


class ElectionSeries:
    """See the module. Used as a context."""

    def __init__(
        self,
        root: Path,
        options: ElectionOptions,
        *,
        keeps: bool,
        say: Say,
        make_group: MakeGroup = MemberGroup,
    ) -> None:
        """root: exists. keeps: files of seeds that held stay, too. make_group: of brokers of
        another kind (tests/interop/java_chaos.py)."""
        self._root = root
        self._options = options
        self._keeps = keeps
        self._say = say
        self._make_group = make_group
        self._group: MemberGroup | None = None
        self._directory = root
        self._number = -1
        """Of the group: the seeds that share it have the same one."""
        self._is_spoilt = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_group()

    def run(self, seed: int) -> ElectionResult:
        """One of them. Raises OSError: there is no place for its files."""
        place = self._root / f"seed-{seed}"
        place.mkdir(parents=True, mode=0o700)
        try:
            group = self._group_for(seed)
        except (ChaosError, NetworkError) as error:
            self._is_spoilt = True
            result = ElectionResult(seed, "")
            result.violations.append(f"the group did not start: {error}")
        else:
            result = ElectionRun(group, place, seed, self._options, self._say).run()
        self._is_spoilt = self._is_spoilt or bool(result.violations)
        if not result.violations and not self._keeps:
            shutil.rmtree(place)
        return result

    def where(self, result: ElectionResult) -> str:
        """Where the files of a seed are that did not hold, or are kept."""
        return f"{self._root / f'seed-{result.seed}'}, its group's in {self._directory}"

    def _group_for(self, seed: int) -> MemberGroup:
        number = seed // SEEDS_A_GROUP
        if self._group is not None and number == self._number and not self._is_spoilt:
            return self._group
        self._end_group()
        self._number = number
        self._directory = self._root / f"group-{seed}"
        self._directory.mkdir(mode=0o700)
        self._group = self._make_group(self._directory, self._options.shape(seed))
        self._group.start()
        return self._group

    def _end_group(self) -> None:
        if self._group is None:
            return
        self._group.kill_everything()
        self._group = None
        if not self._is_spoilt and not self._keeps:
            shutil.rmtree(self._directory)
        self._is_spoilt = False


def tell(say: Say, series: ElectionSeries, result: ElectionResult) -> None:
    """What came of a seed."""
    say(result_line(result))
    for text in result.violations:
        say(f"  {text}")
    if result.violations:
        say(f"  its files: {series.where(result)}")
