"""Groups of RocketMQ 5.3.3 brokers beside ours, under the same seeds of `bin/mqchaos --controller`:

    python -m tests.interop.java_chaos --seed 1 --seeds 5

Load, faults and judge are the tool's; in the end one table says for how long nobody was answered
SEND_OK at each kind of fault, and what was lost or stored twice. Settings of the same name are the
same on all sides. Faults of single processes, orderly stops with an exit code and jumps of a
broker's clock mean nothing to a JVM.

What a group of Java's needs an operator for is done for it, and counted: a follower that follows a
master that was replaced (P38, mixed_groups.py) is started again.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from remoting.request_code import RequestCode
from tests.faults.shim import compile_shim
from tests.interop import harness
from tests.interop.java_peers import QUICK_JVM
from tests.interop.mixed_groups import ports_reached
from tools.chaos.election_options import ElectionOptions
from tools.chaos.election_schedule import ElectionFault
from tools.chaos.election_series import ElectionSeries, MakeGroup, tell
from tools.chaos.election_summary import ElectionSummary, GapRow
from tools.chaos.frame_client import FrameClient
from tools.chaos.free_ports import free_port
from tools.chaos.member_group import GroupShape, MemberGroup
from tools.chaos.scratch_group import ScratchBroker

KINDS: Final = (
    *(ElectionFault.KILL_MASTER, ElectionFault.STOP_MASTER),
    *(ElectionFault.CUT_MASTER, ElectionFault.ELECT),
)
_SHIM: Final = Path(__file__).with_name("bound_address.c")
_JVM: Final = (*QUICK_JVM, "-Djava.net.preferIPv4Stack=true")
_ASK_S: Final = 10.0
_LOST_S: Final = 20.0
"""So long a follower may be outside of the SyncStateSet before it is started again."""


class JavaBroker(ScratchBroker):
    """One that is a JVM; its ports are at its own address."""

    _BOOTED = "boot success"
    starts_within_s = 240.0

    def __init__(
        self, name: str, directory: Path, settings: Mapping[str, object], host: str, shim: Path
    ) -> None:
        """shim: of bound_address.c."""
        super().__init__(name, directory, settings, host)
        self._shim = shim

    def start(self, on_begun: Callable[[], None] = lambda: None) -> None:
        """And have it register at once, which it does when a setting is set."""
        super().start(on_begun)
        with contextlib.suppress(OSError), FrameClient(self.address, _ASK_S) as client:
            client.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")

    def _command(self) -> Sequence[str]:
        jvm = (*_JVM, "-Xms128m", "-Xmx384m", *harness.DISK_FLAGS)
        conf = self.directory / "broker.conf"
        return _java_server(harness.BROKER_MAIN, conf, self._settings, jvm)

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "LD_PRELOAD": str(self._shim), "BIND_ADDRESS": self.host}

    def _ports_of(self, _booted: re.Match[str]) -> dict[str, int]:
        return {"main": int(str(self.setting("listenPort")))}


class JavaBrokers(MemberGroup):
    """Three of them under a controller of ours."""

    whole_s = 90.0
    healed_s = 180.0
    restarted = 0
    """Followers, of all groups, that did not come back by themselves."""

    def __init__(self, directory: Path, shape: GroupShape) -> None:
        self._shim = compile_shim(_SHIM, directory)
        self._outside_since: dict[str, float] = {}
        super().__init__(directory, shape)

    def _broker_of(self, name: str, settings: Mapping[str, object], host: str) -> ScratchBroker:
        own = {
            **settings,
            "brokerRole": "SLAVE",
            "brokerId": -1,
            # Consumers read any member; so they do of ours unless it is set.
            "slaveReadEnable": "true",
            # A follower that comes before the master is ready tries again after that.
            "haSendHeartbeatInterval": 1_000,
            "haHousekeepingInterval": 5_000,
            "storePathCommitLog": self._directory / name / "store" / "commitlog",
        }
        broker = JavaBroker(name, self._directory / name, own, host, self._shim)
        # Slaves copy tables over the master's VIP port.
        vip = int(str(own["listenPort"])) - 2
        self.network.lead((str(own["brokerIP1"]), vip), (host, vip), name)
        return broker

    def tend(self, in_sync: Sequence[tuple[str, int]], master: tuple[str, int] | None) -> None:
        """Start anew who has followed somebody else than the master for too long."""
        now_s, outside = time.monotonic(), self._outside_since
        for broker in self.brokers:
            runs = broker.is_alive and broker.name not in self.paused
            if not in_sync or not runs or broker.address in in_sync:
                outside.pop(broker.name, None)
            elif now_s - outside.setdefault(broker.name, now_s) > _LOST_S:
                del outside[broker.name]
                others = {_ha_port(each) for each in self.brokers if each.address != master}
                if ports_reached(broker.pid) & others:
                    JavaBrokers.restarted += 1
                    broker.kill_all()
                    self.start_these([broker])


def _ha_port(broker: ScratchBroker) -> int:
    return int(str(broker.setting("haListenPort")))


class JavaGroup(JavaBrokers):
    """Under RocketMQ's own controller, too."""

    def _controller_command(self, path: Path, settings: Mapping[str, object]) -> Sequence[str]:
        peers = f"n0-127.0.1.1:{settings['listenPort']}"
        own = {
            **settings,
            "listenPort": free_port(),
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": "n0",
            "mappedFileSize": 1 << 24,
        }
        jvm = (*_JVM, "-Xms64m", "-Xmx256m")
        return _java_server(harness.CONTROLLER_MAIN, path, own, jvm)


def _java_server(
    main: str, conf: Path, settings: Mapping[str, object], jvm: Sequence[str]
) -> Sequence[str]:
    """The command line of a server of 5.3.3 whose settings are written."""
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return harness.java_server("java-5.3", conf.parent, main, jvm, ["-c", str(conf)])


SIDES: Final[Mapping[str, MakeGroup]] = {
    "ours": MemberGroup,
    "5.3.3": JavaGroup,
    "5.3.3 under our controller": JavaBrokers,
}


_TOTALS: Final[Mapping[str, Callable[[ElectionSummary], str]]] = {
    "seeds that held": lambda each: f"{each.seeds_held} of {each.seeds}",
    "answered SEND_OK": lambda each: f"{each.codes.get(0, 0):,}",
    "of these lost": lambda each: f"{each.lost:,}",
    "stored twice": lambda each: f"{each.doubled:,}",
}


def compare(summaries: Mapping[str, ElectionSummary]) -> list[str]:
    """Lines of a table of Markdown: a column for each side. summaries: by side."""
    rows = [{row.kind: row for row in each.rows()} for each in summaries.values()]
    kinds = sorted({kind for found in rows for kind in found})
    lines = [["", *summaries], ["---"] * (1 + len(summaries))]
    lines += [[kind, *(_gaps(found.get(kind)) for found in rows)] for kind in kinds]
    lines += [[name, *map(text_of, summaries.values())] for name, text_of in _TOTALS.items()]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _gaps(row: GapRow | None) -> str:
    """Elections of faults, and seconds without a SEND_OK."""
    if row is None:
        return ""
    text = f"{row.elections} of {row.faults}"
    if row.p50_s is None or row.p99_s is None:
        return text
    return f"{text}: p50 {row.p50_s:.2f} s, p99 {row.p99_s:.2f} s"


def main() -> int:
    """Returns the exit code: 1 if a seed of ours did not hold. What Java's lose is only said."""
    parser = argparse.ArgumentParser(prog="tests.interop.java_chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--count", type=int, default=3, help="faults a seed")
    parser.add_argument("--rate", type=float, default=2_400.0, help="messages a second")
    parser.add_argument("--faults", default=",".join(KINDS))
    parser.add_argument("--sides", default="ours,5.3.3", help=f"of {', '.join(SIDES)}")
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    options = ElectionOptions(
        kinds=[ElectionFault(text) for text in arguments.faults.split(",")],
        faults=arguments.count,
        rate=arguments.rate,
    )
    root = arguments.dir or Path(tempfile.mkdtemp(prefix="java-chaos-"))
    summaries: dict[str, ElectionSummary] = {}
    for side in arguments.sides.split(","):
        place = root / side.replace(" ", "-")
        place.mkdir(parents=True)
        summaries[side] = ElectionSummary(shlex.join(sys.argv), arguments.seed)
        with ElectionSeries(
            place, options, keeps=arguments.keep, say=print, make_group=SIDES[side]
        ) as series:
            for seed in range(arguments.seed, arguments.seed + arguments.seeds):
                result = series.run(seed)
                summaries[side].add(result)
                tell(print, series, result)
    print("\n".join(compare(summaries)))
    print(f"followers of 5.3.3 that were started again: {JavaBrokers.restarted}")
    return 1 if "ours" in summaries and summaries["ours"].violations else 0


if __name__ == "__main__":
    sys.exit(main())
