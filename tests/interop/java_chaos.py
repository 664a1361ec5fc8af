"""The faults of `bin/mqchaos --controller` on 5.3.3 brokers under a 5.3.3 controller, and
the same seeds on ours, in one table:

    python -m tests.interop.java_chaos --seed 1 --seeds 5

Load, faults and judge are the tool's. Java's HA port and its controller listen at every address, so
there is no network of the tool between them: what it cuts, and what hits single processes of a
broker, is left out for both.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.java_peers import QUICK_JVM
from tools.chaos.election_options import ElectionOptions
from tools.chaos.election_schedule import ElectionFault
from tools.chaos.election_series import ElectionSeries, MakeGroup, tell
from tools.chaos.election_summary import ElectionSummary, GapRow
from tools.chaos.frame_client import FrameClient
from tools.chaos.member_group import CONTROLLER, MEMBER, MemberGroup
from tools.chaos.scratch_group import BROKER_NAME, ChaosError, ScratchBroker, wait_for
from tools.chaos.scratch_server import ScratchServer

KINDS: Final = (
    *(ElectionFault.KILL_MASTER, ElectionFault.KILL_SLAVE, ElectionFault.KILL_SLAVES),
    *(ElectionFault.KILL_ALL, ElectionFault.STOP_MASTER, ElectionFault.STOP_SLAVE),
    *(ElectionFault.ELECT, ElectionFault.KILL_CONTROLLER, ElectionFault.STOP_CONTROLLER),
    ElectionFault.KILL_MASTER_AND_CONTROLLER,
)
_READY: Final = re.compile(r"boot success")
_START_S: Final = 120.0
_JVM: Final = (*QUICK_JVM, "-Xms128m", "-Xmx384m")


class JavaBroker(ScratchBroker):
    """A 5.3.3 broker that the tool can kill, stop and continue; it has no processes of its own."""

    def __init__(self, name: str, directory: Path, made: harness.Broker) -> None:
        size = {"mappedFileSizeCommitLog": str(MEMBER_FILE_SIZE)}
        super().__init__(name, directory, size)
        self.store = made.store_dir
        self.ports = {"main": made.port}
        self._made = made

    def start(self, on_begun: Callable[[], None] = lambda: None) -> None:
        """Wait for its boot line, and have it register at once."""
        server = self._made.process
        with self._output.open("ab") as output:
            begun = output.tell()
            self._process = subprocess.Popen(
                server._command,
                env=server._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        on_begun()

        def is_up() -> bool:
            printed = self._output.read_bytes()[begun:].decode(errors="replace")
            return _READY.search(printed) is not None

        wait_for(lambda: is_up() or not self.is_alive, _START_S, self.name)
        if not is_up():
            raise ChaosError(f"{self.name} did not start, see {self._output}")
        with contextlib.suppress(OSError), FrameClient(self.address, 10) as client:
            client.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")

    def set_clock(self, ahead_ms: int) -> None:
        """Its clock is the machine's."""


MEMBER_FILE_SIZE: Final = 1 << 20


class JavaGroup(MemberGroup):
    """Three of them, a 5.3.3 controller, and our name server."""

    def _make_controllers(self, count: int) -> list[ScratchServer]:
        assert count == 1
        directory = self._directory / "controller-1"
        directory.mkdir()
        made = harness.controller(directory, _texts(CONTROLLER))
        process = made._process
        port = int(made.address.rpartition(":")[2])
        server = ScratchServer(
            "controller-1", directory, process._command, "boot success", port=port
        )
        return [server]

    def _make_broker(self, number: int, settings: Mapping[str, object]) -> ScratchBroker:
        name = f"broker-{number}"
        directory = self._directory / name
        directory.mkdir()
        made = harness.broker(
            "java-5.3",
            directory,
            f"127.0.0.1:{self.namesrv.address[1]}",
            name=BROKER_NAME,
            conf={
                **_texts(MEMBER),
                "brokerRole": "SLAVE",
                "brokerId": "-1",
                "controllerAddr": f"127.0.0.1:{self.controllers[0].address[1]}",
                "mappedFileSizeCommitLog": str(MEMBER_FILE_SIZE),
                "timerWheelEnable": "true",
                **_texts(settings),
            },
            jvm=_JVM,
        )
        return JavaBroker(name, directory, made)


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in settings.items()}


def compare(rows: Mapping[str, list[GapRow]]) -> list[str]:
    """One table: each kind of fault, and what there was of it on both sides. rows: by side."""
    sides = [*rows]
    found = {side: {row.kind: row for row in rows[side]} for side in sides}
    kinds = sorted({kind for side in sides for kind in found[side]})
    columns = [f"{side}: elections, p50 s, p99 s" for side in sides]
    lines = [f"| fault | {' | '.join(columns)} |", f"|---|{'---|' * len(sides)}"]
    for kind in kinds:
        cells = [_cell(found[side].get(kind)) for side in sides]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def _cell(row: GapRow | None) -> str:
    if row is None or row.p50_s is None or row.p99_s is None:
        return "" if row is None else f"{row.elections} of {row.faults}"
    return f"{row.elections} of {row.faults}, {row.p50_s:.2f}, {row.p99_s:.2f}"


def main() -> int:
    """Returns the exit code: 1 if a seed of ours did not hold. What Java's loses is only said."""
    parser = argparse.ArgumentParser(prog="tests.interop.java_chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--count", type=int, default=3, help="faults a seed")
    parser.add_argument("--rate", type=float, default=2_400.0)
    parser.add_argument("--faults", default=",".join(KINDS))
    parser.add_argument("--dir", type=Path, default=None)
    arguments = parser.parse_args()
    kinds = [ElectionFault(text) for text in arguments.faults.split(",")]
    options = ElectionOptions(kinds=kinds, faults=arguments.count, rate=arguments.rate)
    root = arguments.dir or Path(tempfile.mkdtemp(prefix="java-chaos-"))
    summaries = {}
    makers: dict[str, MakeGroup] = {"ours": MemberGroup, "5.3.3": JavaGroup}
    for side, make_group in makers.items():
        place = root / side
        place.mkdir(parents=True, exist_ok=True)
        summary = summaries[side] = ElectionSummary(" ".join(sys.argv), arguments.seed)
        with ElectionSeries(place, options, keeps=False, say=print, make_group=make_group) as each:
            for seed in range(arguments.seed, arguments.seed + arguments.seeds):
                result = each.run(seed)
                summary.add(result)
                tell(print, each, result)
    for side, summary in summaries.items():
        print(f"{side}: {summary.seeds_held} of {summary.seeds} seeds held")
    print("\n".join(compare({side: each.rows() for side, each in summaries.items()})))
    return 1 if summaries["ours"].violations else 0


if __name__ == "__main__":
    sys.exit(main())
