"""Our broker as real processes under test, and a blocking client that speaks frames to it.

OurBroker starts `python -m broker` on free ports in a directory of the test, finds its children
by their parent, kills, stops and continues them, stops it orderly and judges its store. Whatever
still lives when the test process ends is killed. FrameClient is one connection, one request at a
time: an answer that does not come is an error with the request's name.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.signature import RequestSigner
from store.check_report import CheckReport
from store.log_directories import LogDirectories
from store.message import Message
from store.message_codec import decode_message_id, decode_record
from store.store_checker import check_store
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder
from tests.support.program import ForkedProgram, start_program
from tools.chaos.processes import children_of, is_running, stat_fields, titled_children

HOME: Final = Path(__file__).parents[2]
SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 20_000,
}
_BOOT_LINE: Final = re.compile(r"^The broker\[.*boot success.*\(ports: (.*)\)$", re.MULTILINE)
_START_S: Final = 20.0
_HANG_S: Final = 60.0
"""What a request may take: a limit for what hangs, not for what is slow."""


class BrokerDiedError(Exception):
    """The broker did not start, or ended; the text holds what it printed."""


class OurBroker:
    """One broker of ours; start it again on the same directory as often as you like."""

    def __init__(self, root: Path, **settings: object) -> None:
        """root: a directory of the test. settings: keys of broker.conf."""
        self.store_dir = root / "store"
        self.log_dir = root / "logs"
        self._conf = root / "broker.conf"
        self._output = root / "output.txt"
        self.env: dict[str, str] = {}
        self.ports: dict[str, int] = {}
        self.settings: dict[str, object] = {
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "metricsAddress": "127.0.0.1",
            "listenPort": 0,
            "metricsPort": 0,
            "embeddedNamesrvPort": 0,
            "storePathRootDir": self.store_dir,
            "logDir": self.log_dir,
            # A test machine's own disk may be full: only a test that asks sees retention.
            "diskMaxUsedSpaceRatio": 95,
            **SMALL_FILES,
            **settings,
        }
        self._process: ForkedProgram | subprocess.Popen[bytes] | None = None
        self._output_from = 0

    # -- life ----------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> Self:
        """Start it; with `wait` until the boot line. Raises BrokerDiedError."""
        text = "".join(f"{key}={value}\n" for key, value in self.settings.items())
        self._conf.parent.mkdir(parents=True, exist_ok=True)
        self._conf.write_text(text)
        with self._output.open("ab") as output:
            self._output_from = output.tell()
            self._process = start_program(
                [sys.executable, "-m", "broker", "-c", str(self._conf)],
                environment={**os.environ, "ROCKETMQ_HOME": str(HOME), **self.env},
                output=output.fileno(),
            )
        _LIVING.add(self)
        if wait:
            self.wait_booted()
        return self

    def wait_booted(self, timeout_s: float = _START_S) -> None:
        """Until the boot line is there; its ports are in `ports` afterwards."""
        wait_until(lambda: self._find_boot_line() or not self.is_alive, timeout_s)
        found = self._find_boot_line()
        if found is None:
            raise BrokerDiedError(self.output())
        self.ports = {
            name: int(port) for name, port in (pair.split(" ") for pair in found[1].split(", "))
        }

    def _find_boot_line(self) -> re.Match[str] | None:
        return _BOOT_LINE.search(self.output())

    @property
    def pid(self) -> int:
        """The supervisor's."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the supervisor runs."""
        return self._process is not None and self._process.poll() is None

    def wait_ended(self, timeout_s: float = 15.0) -> int:
        """Until the supervisor has ended by itself; its exit code."""
        process = self._process
        assert process is not None
        wait_until(lambda: process.poll() is not None, timeout_s)
        return process.wait()

    def terminate(self, timeout_s: float = 15.0) -> int:
        """The orderly stop: SIGTERM; the exit code once every process is gone."""
        children = list(self.children().values())
        os.kill(self.pid, signal.SIGTERM)
        code = self.wait_ended(timeout_s)
        wait_until(lambda: not any(map(is_running, children)))
        _LIVING.discard(self)
        return code

    def crash(self) -> None:
        """SIGKILL to everything at once."""
        if self._process is None:
            return
        if self.is_alive:
            os.kill(self.pid, signal.SIGSTOP)
        # Stopped, it starts no more children; those without a title yet count, too.
        wait_until(lambda: stat_fields(self.pid)[:1] in ([], ["T"], ["Z"]))
        pids = [*children_of(self.pid), self.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(10)
        wait_until(lambda: not any(map(is_running, pids)))
        _LIVING.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"--- output\n{self.output()[-3000:]}\n{self.logs()}")
        self.crash()

    # -- children ------------------------------------------------------------------------------

    def children(self) -> dict[str, int]:
        """Name to pid of the children that have given themselves their title."""
        return titled_children(self.pid)

    def child(self, name: str, *, other_than: int = 0, timeout_s: float = 10.0) -> int:
        """The pid of a living child; waits for it. other_than: the one that was killed."""
        return self._wait_child(name, other_than, timeout_s)[0]

    def _wait_child(self, name: str, other_than: int, timeout_s: float) -> tuple[int, float]:
        """Its pid, and the seconds that it took."""
        found: list[int] = []

        def is_there() -> bool:
            pid = self.children().get(name)
            if pid is None or pid == other_than or not is_running(pid):
                return False
            found.append(pid)
            return True

        took_s = wait_until(is_there, timeout_s)
        return found[0], took_s

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to one child (the "supervisor" too); its pid."""
        pid = self.pid if name == "supervisor" else self.child(name)
        os.kill(pid, number)
        return pid

    def restart_by_kill(self, name: str, timeout_s: float = 10.0) -> float:
        """SIGKILL a child, wait for the next one's title; the seconds it took, of the machine's own
        time."""
        return self._wait_child(name, self.kill(name), timeout_s)[1]

    def stop(self, name: str) -> int:
        """SIGSTOP one child, every thread of it; its pid."""
        pid = self.kill(name, signal.SIGSTOP)
        wait_until(lambda: stands_still(pid))
        return pid

    # -- what it says ---------------------------------------------------------------------------

    def output(self) -> str:
        """What it printed since its last start."""
        with self._output.open("rb") as file:
            file.seek(self._output_from)
            return file.read().decode(errors="replace")

    def log(self, name: str) -> str:
        """The text of one log file: broker, remoting, store, ha, namesrv."""
        path = self.log_dir / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        """The ends of all logs, for a failed test."""
        names = ("broker", "remoting", "store", "ha", "namesrv")
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in names)

    def client(self, listener: str = "main", timeout_s: float = _HANG_S) -> FrameClient:
        """A connection to one of its ports."""
        return FrameClient(("127.0.0.1", self.ports[listener]), timeout_s)

    def check(self) -> CheckReport:
        """store.check over its directories."""
        named = str(self.settings.get("storePathCommitLog", self.store_dir / "commitlog"))
        read_only = str(self.settings.get("readOnlyCommitLogStorePaths", ""))
        return check_store(
            self.store_dir,
            commit_log=LogDirectories(
                tuple(map(Path, named.split(","))),
                tuple(Path(path) for path in read_only.split(",") if path),
            ),
            hash_slots=int(str(self.settings["maxHashSlotNum"])),
        )

    @property
    def has_abort(self) -> bool:
        """Whether the store was not closed orderly."""
        return (self.store_dir / "abort").exists()


_LIVING: set[OurBroker] = set()


@atexit.register
def _kill_the_living() -> None:
    for broker in list(_LIVING):
        broker.crash()


# -- /proc -------------------------------------------------------------------------------------


def stands_still(pid: int) -> bool:
    """Whether every thread is stopped: on a busy machine that comes later than SIGSTOP."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        return {task.read_text().rpartition(")")[2].split()[0] for task in tasks} <= {"T"}
    except OSError:
        return False


# -- the client --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """A send's answer. The offsets are -1 in a refusal."""

    code: int
    remark: str
    queue_id: int
    queue_offset: int
    phy_offset: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """A pull's answer."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Message]


def pull_fields(
    topic: str, queue_id: int, offset: int, *, count: int = 32, suspend_ms: int = 0
) -> dict[str, str]:
    """The header of a pull (11) of everything, as clients write it."""
    return {
        "consumerGroup": "faults",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": str(4 | (2 if suspend_ms else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }


class FrameClient:
    """One connection, one request at a time, one thread. Raises OSError, TimeoutError."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float = _HANG_S,
        *,
        context: ssl.SSLContext | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        """context: for TLS. signer: whose account signs each request."""
        self._sock = socket.create_connection(address, timeout_s)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._sock = context.wrap_socket(self._sock)
        self._signer = signer
        self._frames = FrameDecoder()
        self._requests: deque[RemotingCommand] = deque()
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Idempotent."""
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def post(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        """Send a request, do not wait; its opaque."""
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand.request(code, texts, body)
        if self._signer is not None:
            self._signer.sign(command)
        self._sock.sendall(encode_command(command))
        return command.opaque

    def take(self, opaque: int, timeout_s: float | None = None) -> RemotingCommand:
        """The answer to `opaque`; others that come before it are dropped, requests kept."""
        deadline = time.monotonic() + (timeout_s or self._timeout_s)
        while True:
            command = self._frames.next_command()
            if command is not None:
                if command.opaque == opaque and command.is_response:
                    return command
                if not command.is_response:
                    self._requests.append(command)
                continue
            self._receive(deadline)

    def take_request(self, code: int) -> RemotingCommand:
        """The next request of this code that the broker sends; others are dropped."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            command = self._requests.popleft() if self._requests else self._frames.next_command()
            if command is None:
                self._receive(deadline)
            elif command.code == code and not command.is_response:
                return command

    def _receive(self, deadline: float) -> None:
        self._sock.settimeout(max(deadline - time.monotonic(), 0.001))
        data = self._sock.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        self._frames.feed(data)

    def call(
        self, code: int, fields: Mapping[str, object], body: bytes = b"", **limits: float
    ) -> RemotingCommand:
        """One request and its answer."""
        return self.take(self.post(code, fields, body), **limits)

    def call_frame(self, frame: bytes) -> RemotingCommand:
        """A request of somebody else's bytes, and its answer."""
        decoder = FrameDecoder()
        decoder.feed(frame)
        command = decoder.next_command()
        assert command is not None
        self._sock.sendall(frame)
        return self.take(command.opaque)

    # -- requests ------------------------------------------------------------------------------

    def post_send(
        self, topic: str, queue_id: int, body: bytes, key: str = "", *, waits: bool = True
    ) -> int:
        """Code 310 without waiting; `waits`: whether the broker's answer waits for its replicas."""
        properties = f"KEYS\x01{key}\x02" if key else ""
        properties += "" if waits else "WAIT\x01false\x02"
        fields = {
            "a": "faults",
            "b": topic,
            "c": "TBW102",
            "d": 4,
            "e": queue_id,
            "f": 0,
            "g": int(time.time() * 1000),
            "h": 0,
            "i": properties,
            "j": 0,
            "k": "false",
            "l": 16,
            "m": "false",
        }
        return self.post(310, fields, body)

    def take_send(self, opaque: int, timeout_s: float | None = None) -> Sent:
        """The answer to post_send."""
        answer = self.take(opaque, timeout_s)
        fields = answer.ext_fields
        message_id = fields.get("msgId", "")
        phy_offset = decode_message_id(message_id)[1] if message_id else -1
        offset, queue_id = fields.get("queueOffset", "-1"), fields.get("queueId", "-1")
        return Sent(answer.code, answer.remark or "", int(queue_id), int(offset), phy_offset)

    def send(
        self, topic: str, queue_id: int, body: bytes, key: str = "", *, waits: bool = True
    ) -> Sent:
        """Code 310, the topic is made on its first send."""
        return self.take_send(self.post_send(topic, queue_id, body, key, waits=waits))

    def post_pull(
        self, topic: str, queue_id: int, offset: int, *, count: int = 32, suspend_ms: int = 0
    ) -> int:
        """Code 11 without waiting; with suspend_ms the broker may hold it."""
        fields = pull_fields(topic, queue_id, offset, count=count, suspend_ms=suspend_ms)
        return self.post(11, fields)

    def take_pull(self, opaque: int, timeout_s: float | None = None) -> Pulled:
        """The answer to post_pull."""
        answer = self.take(opaque, timeout_s)
        fields = answer.ext_fields
        names = ("nextBeginOffset", "minOffset", "maxOffset")
        following, low, high = (int(fields.get(name, -1)) for name in names)
        messages: list[Message] = []
        position = 0
        while position < len(answer.body):
            message, size = decode_record(answer.body, position)
            messages.append(message)
            position += size
        return Pulled(answer.code, following, low, high, messages)

    def pull(self, topic: str, queue_id: int, offset: int, *, count: int = 32) -> Pulled:
        """Code 11."""
        return self.take_pull(self.post_pull(topic, queue_id, offset, count=count))

    def offset(self, code: int, topic: str, queue_id: int) -> int:
        """Code 30 (max) or 31 (min)."""
        answer = self.call(code, {"topic": topic, "queueId": queue_id})
        assert answer.code == 0, answer.remark
        return int(answer.ext_fields["offset"])

    def query(self, topic: str, key: str) -> list[Message]:
        """Code 12: messages of `topic` by key."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": 64,
            "beginTimestamp": 0,
            "endTimestamp": (1 << 62),
        }
        answer = self.call(12, fields)
        found: list[Message] = []
        position = 0
        while answer.code == 0 and position < len(answer.body):
            message, size = decode_record(answer.body, position)
            found.append(message)
            position += size
        return found


_REBUILT_MS = 10_000


def drain(client: FrameClient, topic: str, queue_id: int) -> list[Message]:
    """Every message of a queue, pulled from its minimum to the maximum of this moment. A pull waits
    as consumers' do, for units that are being rebuilt."""
    at, end = client.offset(31, topic, queue_id), client.offset(30, topic, queue_id)
    messages: list[Message] = []
    while at < end:
        pulled = client.take_pull(client.post_pull(topic, queue_id, at, suspend_ms=_REBUILT_MS))
        assert pulled.code == 0, f"pull of {topic}/{queue_id} at {at} of {end}: {pulled.code}"
        assert pulled.next_offset > at
        messages += pulled.messages
        at = pulled.next_offset
    return messages


def can_connect(port: int) -> bool:
    """Whether somebody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5):
            return True
    except ConnectionRefusedError:
        return False


class ConnectProbe:
    """Connects again and again, on a thread; counts what clients must never see."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._end = threading.Event()
        self.tries = 0
        self.refused = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._end.wait(0.02):
            for port in self._ports:
                self.tries += 1
                self.refused += not can_connect(port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)
