"""A real master and its slave at one of the eight settings of docs/durability.md, and their faults.

The truth is what a client was told: `Promises` has every SEND_OK with its place and its moment. The
disks are those of page_cache.c (a crash of the machine leaves what was synced) and full_disk.c.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker.slave.promotion import FILE_NAME, read_state
from ha.control_slots import REPLICA_COUNT
from remoting.response_code import ResponseCode
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET
from tests.faults.ledger import QUEUES, TOPIC, Ledger, Senders
from tests.faults.page_cache import PageCache
from tests.support.broker_group import SLAVE, Group, counters_of, log_of
from tests.support.broker_group import TOPIC as OTHER_TOPIC
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker, drain, is_running
from tests.support.stolen_time import OwnTime

FLUSH_INTERVAL_S: Final = 0.1
"""flushIntervalCommitLog of every pair: smaller than the default, for a shorter test."""
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.01
"""Load, but not all that the processors can give: the faults want them, too."""

_TOPICS: Final = {
    "dataVersion": {"counter": 1, "timestamp": 1_700_000_000_000},
    "topicConfigTable": {
        TOPIC: {
            "topicName": TOPIC,
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
    },
}
"""config/topics.json: a slave asks for its master's topics only after three seconds."""

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One code of docs/durability.md."""

    code: str
    flush: str
    role: str
    ack_level: str

    @property
    def is_sync_flush(self) -> bool:
        """Whether a SEND_OK says that the master's disk has the message."""
        return self.flush == "SYNC_FLUSH"

    @property
    def is_sync_master(self) -> bool:
        """Whether a SEND_OK says that the slave has the message."""
        return self.role == "SYNC_MASTER"

    @property
    def is_on_slaves_disk(self) -> bool:
        """Whether a SEND_OK says that the slave's disk has the message."""
        return self.is_sync_master and self.ack_level == "flushed"


def _settings() -> Iterator[Setting]:
    for letter, flush in (("A", "ASYNC_FLUSH"), ("S", "SYNC_FLUSH")):
        yield Setting(f"{letter}1", flush, "ASYNC_MASTER", "received")
        for number, level in enumerate(("received", "validated", "flushed"), 2):
            yield Setting(f"{letter}{number}", flush, "SYNC_MASTER", level)


SETTINGS: Final = {setting.code: setting for setting in _settings()}


class Promises(Ledger):
    """Only what was answered with SEND_OK, and when."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = OwnTime()
        self.at_s: dict[Place, float] = {}

    def now_s(self) -> float:
        """Of the machine's own time (tests/support/stolen_time.py)."""
        with self._lock:
            return self._clock.s()

    def note(self, place: Place, body: bytes, code: int) -> None:
        """One answer; the other codes are only counted."""
        if code != ResponseCode.SUCCESS:
            with self._lock:
                self.codes[code] += 1
            return
        super().note(place, body, code)
        self.at_s.setdefault(place, self.now_s())


class DurabilityPair:
    """Both brokers, each with a disk of its own. Both roles can be taken by either."""

    def __init__(self, root: Path, setting: Setting, libraries: tuple[Path, Path]) -> None:
        """root: on a tmpfs (page_cache.py). libraries: of page_cache.c and full_disk.c."""
        self.setting = setting
        self.group = Group(root)
        self.master, self.slave = self.group.first, self.group.second
        self._page_cache, self._full_disk = libraries
        self.disks = {broker: self._disk_of(broker) for broker in (self.master, self.slave)}
        self.promises = Promises()
        self.ha_port = int(str(self.master.settings["listenPort"])) + 1
        self.file_size = int(str(self.master.settings["mappedFileSizeCommitLog"]))

    def _disk_of(self, broker: OurBroker) -> PageCache:
        directory = broker.store_dir.parent
        directory.mkdir(parents=True)
        disk = PageCache(directory, self._page_cache)
        broker.env = disk.environment("/commitlog/")
        disk.write(self.topics_of(broker), json.dumps(_TOPICS).encode())
        broker.env["LD_PRELOAD"] += f":{self._full_disk}"
        broker.env["FULL_DISK"] = str(self._full_switch(broker))
        broker.settings |= {
            "flushDiskType": self.setting.flush,
            "haAckLevel": self.setting.ack_level,
            "flushIntervalCommitLog": int(FLUSH_INTERVAL_S * 1_000),
            "flushCommitLogThoroughInterval": int(FLUSH_INTERVAL_S * 1_000),
            "slaveTimeout": 1_000,
            "haSendHeartbeatInterval": 300,
            "haHousekeepingInterval": 2_000,
            "cleanResourceInterval": 200,
            # A slave that was stopped stays so until the test goes on.
            "processHangTimeoutMillis": 120_000,
        }
        return disk

    @staticmethod
    def topics_of(broker: OurBroker) -> Path:
        """Its table of topics, in which both have the topic of the load from the beginning."""
        return broker.store_dir / "config" / "topics.json"

    @staticmethod
    def _full_switch(broker: OurBroker) -> Path:
        return broker.store_dir.parent / "the disk is full"

    # -- life ----------------------------------------------------------------------------------

    def start(self, **of_slave: object) -> DurabilityPair:
        """Both, until the slave follows and serves some messages."""
        self.start_master(self.master)
        self.start_slave(self.slave, **of_slave)
        self.wait_in_sync()
        with self.load(first=8):
            pass
        self.wait_in_sync()
        self.wait_recorded(first_copy=False)
        self._wait_dispatched(self.slave)
        return self

    def start_master(self, broker: OurBroker) -> float:
        """In the master's role, as docs/replication.md says and without haPromoteUnclean; the
        seconds until it serves."""
        clock = OwnTime()
        self.group.start(broker, {"brokerRole": self.setting.role, "brokerId": 0})
        return clock.s()

    def start_slave(self, broker: OurBroker, **settings: object) -> None:
        self.group.start(broker, {**SLAVE, "slaveSyncInterval": 200}, **settings)

    def wait_recorded(self, *, first_copy: bool) -> None:
        """Until the slave has recorded that it has copied the tables, and the log as well: that
        takes it up to five seconds."""
        path = self.slave.store_dir / FILE_NAME

        def is_recorded() -> bool:
            state = read_state(path)
            if state is None or state.tablesCopiedAt <= 0:
                return False
            return state.firstCopyDone or not first_copy

        wait_until(is_recorded, _PATIENCE_S)

    def knows(self, broker: OurBroker, topic: str) -> bool:
        """Whether consumers get the topic's messages of it."""
        with broker.client() as client:
            return client.pull(topic, 0, 0, count=1).code == ResponseCode.SUCCESS

    def wait_in_sync(self) -> None:
        """Until a slave is linked and has everything."""
        with counters_of(self.master) as master, counters_of(self.slave) as slave:
            wait_until(
                lambda: master[REPLICA_COUNT] and slave[MAX_PHY_OFFSET] == master[MAX_PHY_OFFSET],
                _PATIENCE_S,
            )

    def wait_in_sync_under_load(self) -> None:
        """Until the slave has what the master had at the beginning."""
        with counters_of(self.master) as master, counters_of(self.slave) as slave:
            end = master[MAX_PHY_OFFSET]
            wait_until(lambda: slave[MAX_PHY_OFFSET] >= end, _PATIENCE_S)

    @staticmethod
    def _wait_dispatched(broker: OurBroker) -> None:
        """Until all that its log has can be read."""
        with counters_of(broker) as counters:
            wait_until(lambda: counters[DISPATCHED_OFFSET] == counters[MAX_PHY_OFFSET], _PATIENCE_S)

    def lag(self) -> int:
        """Bytes of the log that the slave lacks."""
        with counters_of(self.master) as master, counters_of(self.slave) as slave:
            return master[MAX_PHY_OFFSET] - slave[MAX_PHY_OFFSET]

    def code_of_a_send(self) -> int:
        """What the master answers to a message of another topic."""
        with self.master.client() as client:
            return client.send(OTHER_TOPIC, 0, b"one more").code

    @contextlib.contextmanager
    def load(
        self, size: int = 200, first: int = 100, pause_s: float = _PAUSE_S
    ) -> Iterator[Senders]:
        """Sends to the master meanwhile; `first` SEND_OK have come before the body begins."""
        senders = Senders(self.master, self.promises, count=1, size=size, pause_s=pause_s)
        with senders:
            self.promises.wait_for_more(first, _PATIENCE_S)
            yield senders

    # -- faults --------------------------------------------------------------------------------

    def crash_machine(self, broker: OurBroker) -> None:
        """What its processes have not synced is gone, and it comes back in another boot."""
        broker.crash()
        self.cut_power(broker)

    def kill_supervisor(self, broker: OurBroker) -> None:
        """The other processes end by themselves then."""
        others = broker.children().values()
        broker.kill("supervisor")
        broker.wait_ended(_PATIENCE_S)
        wait_until(lambda: not any(map(is_running, others)), _PATIENCE_S)

    def cut_power(self, broker: OurBroker) -> None:
        """Of a broker that has ended."""
        self.disks[broker].cut_power(broker.store_dir)
        (broker.store_dir / "abort").write_text("another boot")

    def lose_disk(self, broker: OurBroker) -> None:
        """All files of a broker that has ended."""
        shutil.rmtree(broker.store_dir)

    @contextlib.contextmanager
    def full(self, broker: OurBroker) -> Iterator[None]:
        """No file can be made on its disk meanwhile."""
        switch = self._full_switch(broker)
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()

    def change_roles(self) -> None:
        """What was the slave is the master from now on."""
        self.master, self.slave = self.slave, self.master

    # -- what is there -------------------------------------------------------------------------

    def stored(self, broker: OurBroker) -> dict[Place, bytes]:
        """Every message that a consumer gets of it; queue offsets are dense from 0."""
        with counters_of(broker) as counters:
            wait_until(lambda: counters[DISPATCHED_OFFSET] == counters[MAX_PHY_OFFSET], _PATIENCE_S)
        found: dict[Place, bytes] = {}
        with broker.client() as client:
            for queue_id in range(QUEUES):
                messages = drain(client, TOPIC, queue_id)
                offsets = [message.queue_offset for message in messages]
                assert offsets == list(range(len(offsets))), queue_id
                found |= {(TOPIC, queue_id, m.queue_offset): m.body for m in messages}
        assert len(set(found.values())) == len(found), "a message is stored twice"
        return found

    def lost(self, broker: OurBroker) -> set[Place]:
        """Places of acknowledged messages that the broker does not have; none is another one."""
        assert self.promises.acknowledged
        assert not self.promises.doubled, "two sends were given the same place"
        found = self.stored(broker)
        lost = self.promises.acknowledged.keys() - found.keys()
        for place in self.promises.acknowledged.keys() & found.keys():
            assert found[place] == self.promises.acknowledged[place], place
        return lost

    def assert_nothing_lost(self, *brokers: OurBroker) -> None:
        for broker in brokers or (self.master, self.slave):
            lost = self.lost(broker)
            assert not lost, f"{broker.store_dir.parent.name} lost {len(lost)}: {min(lost)}"

    def assert_equal(self) -> None:
        """The same log, byte for byte, and nothing lost at either broker."""
        self.wait_in_sync()
        wait_until(lambda: self.knows(self.slave, TOPIC), _PATIENCE_S)
        assert log_of(self.master) == log_of(self.slave)
        self.assert_nothing_lost()

    def forget(self, lost: set[Place]) -> None:
        """Places that the new master may give again: they were only on the disk that was lost."""
        for place in lost:
            del self.promises.acknowledged[place]

    def proved(self, what: str, **figures: Any) -> str:
        """A line for the fixture `proved`."""
        more = "".join(f", {name.replace('_', ' ')} {value}" for name, value in figures.items())
        return f"{self.setting.code}, {what}: {len(self.promises)} SEND_OK{more}"
