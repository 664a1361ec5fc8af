"""Process `remoting` in controller mode, as it runs; `store` runs here, and `ha` is played here.

Orders are written down on the control page while a client sends over one connection.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.supervisor.boot_info import BootInfo
from broker.supervisor.control_slots import REMOTING_READY
from ha.control_slots import (
    MASTER_EPOCH,
    MEMBER_ORDER,
    ORDER_TAKEN,
    PUTS_UNTIL_MS,
    MemberRole,
    order_after,
)
from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.command_channel import create_channel
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import create_metric_slots
from ipc.queue_table import create_queue_table
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.control_slots import CONFIRM_OFFSET, MAX_PHY_OFFSET, NO_BOUND
from store.default_message_store import DefaultMessageStore
from store.store_progress import StoreBells
from tests.broker.hot_path_world import pull_request, send_request
from tests.broker.member_world import bodies
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder

FILE_SIZE = 1 << 20
ROOT = Path(__file__).resolve().parents[3]


class Process:
    """Process `remoting`, a child of this one, and the page that both share."""

    def __init__(self, root: Path) -> None:
        page_fd, queues_fd = ControlPage.create(), create_queue_table()
        self.page = ControlPage(page_fd)
        self.counters = self.page.counters
        self.counters[CONFIRM_OFFSET] = NO_BOUND
        indexes = {"store": ProcessIndex.STORE, "remoting": ProcessIndex.REMOTING}
        indexes["ha"] = ProcessIndex.HA
        bell_fds = {name: Bell.create() for name in indexes}
        self.bell = Bell(self.page, ProcessIndex.REMOTING, bell_fds["remoting"])
        settings = {
            "storePathRootDir": str(root / "store"),
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": "",
            "rocketmqHome": str(root),
            "enableControllerMode": "true",
            "controllerAddr": "127.0.0.1:1",
            "inSyncReplicas": "1",
            "mappedFileSizeCommitLog": str(FILE_SIZE),
            "mappedFileSizeConsumeQueue": "20000",
            "diskMaxUsedSpaceRatio": "99",
        }
        self._store = DefaultMessageStore(
            StartupOptions.from_settings(settings).store,
            self.page,
            queues_fd,
            StoreBells(Bell(self.page, ProcessIndex.STORE, bell_fds["store"]), self.bell.ring),
            SystemClock(),
            _fail,
        )
        self._store.open()
        self._store.start()
        listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.address = listening[0].getsockname()
        life, self._life = os.pipe()
        channels = ("remoting->store", "remoting->ha", "remoting<-ha", "remoting<-lent")
        self._child = _spawn(
            BootInfo(
                name="remoting",
                index=ProcessIndex.REMOTING,
                parent_pid=os.getpid(),
                broker_started_ms=0,
                settings=settings,
                log_dir=str(root),
                control_page_fd=page_fd,
                queue_table_fd=queues_fd,
                metrics_fd=create_metric_slots(),
                life_fd=life,
                bell_fds=bell_fds,
                channel_fds={name: create_channel()[0].detach() for name in channels},
                listen_fds={
                    name: sock.detach()
                    for name, sock in zip(("main", "vip"), listening, strict=True)
                },
                changes_fd=ChangedSettings.create(),
            )
        )
        # Process `ha` judges the member's files: until it serves, this broker does not.
        wait_until(lambda: self.page.beats(ProcessIndex.REMOTING) >= 3, 30)
        self.was_ready_alone = self.counters[REMOTING_READY] == 1
        self.page.beat(ProcessIndex.HA)
        wait_until(lambda: self.counters[REMOTING_READY] == 1, 30)

    def give(self, role: MemberRole, epoch: int) -> None:
        """Write an order down, and ring."""
        self.counters[MASTER_EPOCH] = epoch
        self.counters[PUTS_UNTIL_MS] = NO_BOUND
        self.counters[MEMBER_ORDER] = order_after(self.counters[MEMBER_ORDER], role)
        self.bell.ring()

    def wait_taken(self) -> None:
        """Until the order is carried out, as process `ha` does before anything else."""
        wait_until(lambda: self.counters[ORDER_TAKEN] == self.counters[MEMBER_ORDER], 10)

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        self._store.shutdown(writer_has_stopped=False)
        os.close(self._life)


def _spawn(boot: BootInfo) -> subprocess.Popen[bytes]:
    boot_fd = os.memfd_create("boot")
    os.pwrite(boot_fd, msgspec.json.encode(boot), 0)
    fds = [boot_fd, boot.control_page_fd, boot.queue_table_fd, boot.metrics_fd, boot.life_fd]
    fds += [boot.changes_fd, *boot.bell_fds.values(), *boot.channel_fds.values()]
    fds += boot.listen_fds.values()
    return subprocess.Popen(
        [sys.executable, "-m", f"broker.processes.{boot.name}", str(boot_fd)],
        pass_fds=fds,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _fail(service: object, error: Exception) -> None:
    raise AssertionError(f"{service}: {error}") from error


class Client:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = socket.create_connection(address)
        self._sock.settimeout(10)
        self._decoder = FrameDecoder()

    def post(self, request: RemotingCommand) -> None:
        self._sock.sendall(encode_command(request))

    def take(self) -> RemotingCommand:
        while (answer := self._decoder.next_command()) is None:
            data = self._sock.recv(65_536)
            assert data, "the connection was closed"
            self._decoder.feed(data)
        return answer

    def call(self, request: RemotingCommand) -> RemotingCommand:
        self.post(request)
        return self.take()

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    found = Process(tmp_path)
    yield found
    found.close()


def test_the_role_changes_while_a_client_sends(process: Process) -> None:
    """What was answered SUCCESS is in the log, in this order; nothing else is; and nothing is put
    between the moment at which another role was taken and the next lead."""
    assert not process.was_ready_alone
    client, stored = Client(process.address), []
    codes: list[int] = []
    answered = asked = 0

    def send(count: int) -> None:
        nonlocal answered, asked
        for _ in range(count):
            client.post(send_request(b"%d" % asked))
            asked += 1
        while answered < asked:
            answer = client.take()
            codes.append(answer.code)
            if answer.code == ResponseCode.SUCCESS:
                stored.append(b"%d" % answered)
            answered += 1

    send(20)
    assert set(codes) == {ResponseCode.SERVICE_NOT_AVAILABLE}
    for epoch in range(1, 11):
        process.give(MemberRole.LEAD, epoch)
        send(50)
        process.wait_taken()
        send(50)
        process.give(MemberRole.FOLLOW if epoch % 2 else MemberRole.FENCED, epoch)
        send(50)
        process.wait_taken()
        end = process.counters[MAX_PHY_OFFSET]
        before = len(stored)
        send(20)
        assert (process.counters[MAX_PHY_OFFSET], len(stored)) == (end, before)
    assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
    assert len(stored) >= 10 * 50
    found: list[bytes] = []
    while len(found) < len(stored):
        answer = client.call(pull_request(queueOffset=len(found), sysFlag=4))
        assert answer.code == ResponseCode.SUCCESS
        found += [body for _, body in bodies(answer)]
    assert found == stored
    client.close()
