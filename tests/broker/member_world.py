"""Members of a group with a controller: `remoting` of each, over real files, without threads.

Process `ha` is played: it writes the slots of the control page, and copies the log of who leads,
byte for byte, with the writer that it really has (store/replica_log.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ha.control_slots import (
    MASTER_EPOCH,
    MASTER_LINKED,
    MEMBER_ORDER,
    ORDER_TAKEN,
    PUTS_UNTIL_MS,
    REPLICATED_OFFSET,
    MemberRole,
    order_after,
)
from remoting.body.topic_config import TopicConfig
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from store.commit_log_reader import CommitLogReader
from store.control_slots import CONFIRM_OFFSET, FLUSHED_OFFSET, MAX_PHY_OFFSET, NO_BOUND
from store.message_codec import decode_record
from store.replica_log import ReplicaLog
from tests.broker.hot_path_world import pull_request, send_request
from tests.broker.served_broker import FILE_SIZE, ServedBroker
from tests.fuzz.served_connection import ServedConnection

TOPIC = "T"


def bodies(answer: RemotingCommand) -> list[tuple[int, bytes]]:
    """Queue offset and body of the messages in an answer."""
    found, at = [], 0
    while at < len(answer.body):
        record, size = decode_record(answer.body, at)
        found.append((record.queue_offset, record.body))
        at += size
    return found


class Member(ServedBroker):
    """One broker, and what its process `ha` does."""

    def __init__(
        self,
        root: Path,
        *,
        all_ack: bool = False,
        hot: bool = True,
        first_role: MemberRole = MemberRole.FENCED,
        **settings: str,
    ) -> None:
        """first_role: of epoch 1, that a predecessor of process `remoting` had."""
        self._first_role = first_role
        self.address = "127.0.0.1:1"
        """Of the master, as the controllers say."""
        root.mkdir(exist_ok=True)
        super().__init__(
            root,
            {
                "enableControllerMode": "true",
                "controllerAddr": "127.0.0.1:1",
                "allAckInSyncStateSet": "true" if all_ack else "false",
                "inSyncReplicas": "1",
                "brokerName": "broker-a",
                **settings,
            },
            hot=hot,
            ha_commands={"member_role": self._member_role, "master_address": lambda _: {}},
        )
        self.root = root
        self._replica: ReplicaLog | None = None
        self.controller._tables.topics.update(TopicConfig(topic_name=TOPIC))
        self.turn()

    def _open_broker(self, root: Path) -> None:
        self.counters = self.page.counters
        self.counters[CONFIRM_OFFSET] = NO_BOUND
        if self._first_role is not MemberRole.FENCED:
            self.give(self._first_role)
        super()._open_broker(root)

    def _member_role(self, _arguments: Any) -> dict[str, Any]:
        return {
            "order": self.counters[MEMBER_ORDER],
            "role": self.counters[MEMBER_ORDER] % 4,
            "master_broker_id": 1,
            "master_address": self.address,
            "master_epoch": self.counters[MASTER_EPOCH],
            "broker_id": 2,
        }

    # -- orders --------------------------------------------------------------------------------

    def order(self, role: MemberRole, epoch: int = 1) -> None:
        """Give an order, as MemberHost does, and wait until it is carried out."""
        if self._replica is not None and role is not MemberRole.FOLLOW:
            self._replica.close()
            self._replica = None
        self.give(role, epoch)
        self.turn()
        assert self.counters[ORDER_TAKEN] == self.counters[MEMBER_ORDER]

    def give(self, role: MemberRole, epoch: int = 1) -> None:
        """Write an order down; nobody has looked at it yet."""
        self.counters[MASTER_EPOCH] = epoch
        self.counters[PUTS_UNTIL_MS] = NO_BOUND
        self.counters[MASTER_LINKED] = 1 if role is MemberRole.FOLLOW else 0
        self.counters[MEMBER_ORDER] = order_after(self.counters[MEMBER_ORDER], role)

    def lead(self, epoch: int = 1) -> None:
        """Of an election."""
        self.order(MemberRole.FENCED, epoch)
        self.order(MemberRole.LEAD, epoch)

    def follow(self, epoch: int = 1) -> None:
        """Of an election that another has won."""
        self.order(MemberRole.FENCED, epoch)
        self.order(MemberRole.FOLLOW, epoch)

    def copy_from(self, leader: Member) -> None:
        """What the HA link brings: all that the leader has published."""
        assert self.counters[ORDER_TAKEN] % 4 == MemberRole.FOLLOW
        if self._replica is None:
            self._replica = ReplicaLog(self.log_path, FILE_SIZE, self.page, lambda: None)
            self._replica.open()
        end = leader.counters[MAX_PHY_OFFSET]
        data = leader.log_bytes()[self._replica.position : end]
        self._replica.make_room(len(data))
        self._replica.write(0, data)
        self._replica.advance(len(data))
        self._replica.publish(end)
        self.dispatch()

    def acknowledge(self) -> None:
        """The replicas have all of the log."""
        self.counters[REPLICATED_OFFSET] = self.counters[MAX_PHY_OFFSET]
        self.turn()

    def flush(self) -> None:
        """All that was stored is on disk."""
        self.counters[FLUSHED_OFFSET] = self.counters[MAX_PHY_OFFSET]
        self.turn()

    def tick(self) -> None:
        """Each timer of the loop runs once, whenever it is due; then a turn ends."""
        loop = self.controller.loop
        timers, loop._timers = loop._timers, []
        for _, _, handle in sorted(timers, key=lambda timer: timer[:2]):
            if not handle.cancelled:
                handle.function()
        self.turn()

    def wait_for_ends(self) -> None:
        """The thread that checks transactions has read which halves have ended."""
        known = self.controller._messages.end_transaction._halves.known
        assert known.wait(10)

    def close(self) -> None:
        """Ends what runs by itself, too."""
        self.controller._messages.stop_checks()
        super().close()

    # -- the log and clients -------------------------------------------------------------------

    @property
    def log_path(self) -> Path:
        return self._options.store.commit_log_path

    @property
    def journal_path(self) -> Path:
        return self._options.store.pop_journal_path

    def log_bytes(self) -> bytes:
        """All published bytes."""
        reader = CommitLogReader(self.log_path, FILE_SIZE, self.page)
        view, end = reader.view_of_file(0), self.counters[MAX_PHY_OFFSET]
        assert end <= FILE_SIZE
        return b"" if view is None else bytes(view[:end])

    def call(self, peer: ServedConnection, *requests: RemotingCommand) -> list[RemotingCommand]:
        """Requests of one turn, and what was answered in it."""
        for request in requests:
            peer.feed(encode_command(request))
        self.turn()
        return peer.answers()

    def send(self, peer: ServedConnection, body: bytes, **fields: Any) -> RemotingCommand | None:
        """One message for queue 0; None: the answer waits."""
        fields = {"topic": TOPIC, "producer_group": "P", "queue_id": 0, **fields}
        answers = self.call(peer, send_request(body, **fields))
        return answers[0] if answers else None

    def pull(self, peer: ServedConnection, offset: int) -> RemotingCommand:
        """A pull of queue 0 from `offset` on, without waiting."""
        (answer,) = self.call(peer, pull_request(topic=TOPIC, queueOffset=offset, sysFlag=4))
        return answer
