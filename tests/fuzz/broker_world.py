"""Process `remoting` of a master, in this process and without threads: every request code.

A BrokerController of real parts over a real store; `store` is stepped by hand. Two addresses ask:
the fuzzer's connection (a new one for each input) and a bystander, whose messages have to be
stored and read whatever the other one did.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import socket
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

from broker import broker_controller
from broker.broker_controller import BrokerController
from broker.processes.store import _handlers
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.wiring.process_resources import ProcessResources
from ipc.bell import Bell
from ipc.command_channel import CommandServer, create_channel
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from ipc.queue_table import QueueTableReader, create_queue_table
from remoting.body.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.signature import RequestSigner
from store.control_slots import ALLOCATED_END, MAX_PHY_OFFSET
from store.default_message_store import DefaultMessageStore
from store.errors import StoreError
from tests.broker.auth.test_auth_config import ACLS, USERS
from tests.broker.hot_path_world import pull_request, send_fields
from tests.fuzz.mutation import MOST_COMMANDS, count_frames, frames_of
from tests.fuzz.served_connection import (
    InlineLoop,
    ServedConnection,
    request,
    serve_at_once,
)
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

BYSTANDER = "Bystander-5d1f"
TOPICS = ("GTopic", "GBatchTopic", "GTxTopic", "GRetryTopic", "GDlqTopic")
GROUPS = ("G_group", "G_tx_group", "G_retry_group")
ACCOUNTS = """
accounts:
- accessKey: application
  secretKey: application-secret
  topicPerms: [GTopic=PUB|SUB, Bystander-5d1f=PUB|SUB]
  groupPerms: [G_group=SUB, bystanders=SUB]
- accessKey: membership
  secretKey: member-secret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: operator
  secretKey: operator-secret
  admin: true
"""
_FILE_SIZE = 1 << 20
_USERS = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": USERS,
    "initAuthenticationUser": '{"username":"operator","password":"operator-secret"}',
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": ACLS,
}
_ENTRIES = [
    {"resource": f"{kind}:*", "actions": ["All"], "decision": "Allow"}
    for kind in ("Topic", "Group")
]
_MEMBER = RequestSigner("membership", "member-secret")
_SIGNERS = (
    RequestSigner("application", "application-secret"),
    RequestSigner("operator", "operator-secret"),
)
_HOLD_MS = 60_000
_UNANSWERED = (Code.END_TRANSACTION,)
"""A decision that is still open has no answer."""
_OF_OPERATORS = (
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC,
    Code.DELETE_TOPIC_IN_BROKER,
)
"""What they do to the bystander's topic they may do."""


class Access(enum.Enum):
    """Who is let in, and who signs what the fuzzer changed."""

    OPEN = "everybody"
    SIGNED = "one of two accounts of 4.9"
    ACCOUNTS = "an account of 4.9 with all rights on topics and groups"
    USERS = "a user of 5.x with all rights on topics and groups"


class _AnsweringEnd:
    """The asking end of a channel; what is asked is answered before the asker waits."""

    def __init__(self, sock: socket.socket, serve: Any) -> None:
        self._sock, self._serve = sock, serve

    def send(self, packet: bytes) -> int:
        size = self._sock.send(packet)
        self._serve()
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class BrokerWorld:
    """See the module. access: requests are signed after the fuzzer changed them: it cannot guess
    signatures, and what comes behind them is looked at here."""

    def __init__(
        self, root: Path, *, access: Access = Access.OPEN, file_size: int = _FILE_SIZE
    ) -> None:
        self._access = access
        self._file_size = file_size
        with_acl = access in (Access.SIGNED, Access.ACCOUNTS)
        if with_acl:
            (root / "conf").mkdir()
            (root / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
        self.clock = ManualClock()
        self._options = StartupOptions.from_settings(
            {
                "storePathRootDir": str(root),
                "brokerIP1": "127.0.0.1",
                "listenPort": "10911",
                "namesrvAddr": "",
                "rocketmqHome": str(root),
                "aclEnable": str(with_acl).lower(),
                "enablePropertyFilter": "true",
                "mappedFileSizeCommitLog": str(file_size),
                "mappedFileSizeConsumeQueue": "20000",
                "maxHashSlotNum": "1000",
                "maxIndexNum": "4000",
                "diskMaxUsedSpaceRatio": "99",
                **(_USERS if access is Access.USERS else {}),
            }
        )
        self.page = fresh_page()
        self._fds = [create_queue_table(), create_metric_slots(), ChangedSettings.create()]
        self._channels: list[socket.socket] = []
        self._open_store()
        self._open_broker(root)
        self._next_offset = 0
        self._consumer = self._connect()
        if access is Access.USERS:
            self._create_member()
        for topic in (*TOPICS, BYSTANDER):
            self._create(topic)
        self._consumer.feed(self._signed(_heartbeat(), admin=True))
        self._neighbour = self._connect()
        for number in range(12):
            topic = TOPICS[number % 3]
            fields = send_fields(topic=topic, queue_id=number % 4, properties=_properties(number))
            self._neighbour.feed(self._signed(request(Code.SEND_MESSAGE_V2, fields, b"x" * 40)))
        self.turn()
        self._neighbour.answers()
        self._consumer.answers()
        self.check()

    # -- construction --------------------------------------------------------------------------

    def _open_store(self) -> None:
        names = {"store": ProcessIndex.STORE, "remoting": ProcessIndex.REMOTING}
        names["ha"] = ProcessIndex.HA
        self._bells = {name: Bell(self.page, i, Bell.create()) for name, i in names.items()}
        self._store = DefaultMessageStore(
            self._options.store,
            self.page,
            self._fds[0],
            self._bells["store"],
            lambda: None,
            self.clock,
            _fail,
        )
        self._store.open()
        self._allocate()

    def _open_broker(self, root: Path) -> None:
        ours: dict[str, Any] = {}
        handlers: dict[str, Any] = {
            "remoting->store": _handlers(self._options, self._store, self.clock),  # type: ignore[arg-type]
            "remoting->ha": {},
            "remoting<-ha": {},
        }
        for name, commands in handlers.items():
            asking, answering = create_channel()
            self._channels += [asking, answering]
            server = CommandServer(answering, commands, self.clock, refusals=(StoreError,))

            def serve(server: CommandServer = server) -> None:
                self.dispatch()
                server.step()

            ours[name] = _AnsweringEnd(asking, serve)
        resources = ProcessResources(
            options=self._options,
            page=self.page,
            queue_table_fd=self._fds[0],
            bells=self._bells,
            channels=ours,
            clock=self.clock,
            metric_slots=MetricSlots(self._fds[1], ProcessIndex.REMOTING),
            config_file=root / "broker.conf",
            changed=ChangedSettings(self._fds[2]),
        )
        with mock.patch.object(broker_controller, "SelectorLoop", InlineLoop):
            self.controller = BrokerController(resources)
        (root / "broker.conf").write_text("brokerName=broker-a\n")
        controller = self.controller
        controller.load_tables()
        tables = controller._tables
        for manager in (*tables._managers, tables.schedule_offsets):
            manager.save_in_background(lambda _name, _save: None)
        controller._tables.restore_lost(self._options.store.consume_queue_path)
        controller._access_control.open(controller._executor)
        controller._store.open_log()
        new_topics = controller._messages.new_topics
        new_topics._start, new_topics._register = lambda run: run(), lambda _topics: None
        self._server = controller._server
        serve_at_once(self._server)
        controller._messages.end_transaction._halves.known.set()
        controller.loop.end_turn = self._end_turn  # type: ignore[attr-defined]

    def _connect(self, host: str = "127.0.0.1") -> ServedConnection:
        return ServedConnection(self._server, self.controller.loop, host)

    def _create(self, topic: str) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        self._consumer.feed(self._signed(request(Code.UPDATE_AND_CREATE_TOPIC, fields), admin=True))
        self.turn()
        answers = [answer for answer in self._consumer.answers() if answer.is_response]
        assert [answer.code for answer in answers] == [0], answers

    # -- the other processes -------------------------------------------------------------------

    def _allocate(self) -> None:
        counters = self.page.counters
        wanted = (counters[MAX_PHY_OFFSET] // self._file_size + 2) * self._file_size
        for _ in range(6):
            if counters[ALLOCATED_END] >= wanted:
                return
            self._store._allocate.step()

    def dispatch(self) -> None:
        """What process `store` does with what was appended."""
        self.controller._turn_end()
        while self._store._reput.dispatch_once():
            pass
        self._allocate()

    def _end_turn(self) -> None:
        self.dispatch()
        follower = self.controller._follower
        follower.before_sleep()
        follower.after_sleep()

    def turn(self) -> None:
        """The end of a turn of the loop, the store's work, and the start of the next."""
        self._end_turn()
        self.controller._turn_end()
        self._server.flush()

    # -- inputs --------------------------------------------------------------------------------

    def run(self, data: bytes) -> None:
        """One connection's bytes; every request of it is answered by the end of the longest
        wait, unless it is oneway or the connection is closed."""
        commands = frames_of(data)
        if self._access is Access.SIGNED:
            data = self._signed(data, admin=bool(zlib.crc32(data) & 1))
        peer = self._connect(_host_of(data))
        body = commands[-1].body if commands else b""
        self._consumer.connection.answer = peer.connection.answer = (len(data) % 2, body)
        try:
            peer.feed(data)
            self.turn()
            self.clock.advance(_HOLD_MS)
            while self.controller._pull.hold_service.scan(self.clock.monotonic_ms()):
                pass
            self.controller._messages.append_queue.look()
            self.turn()
            self._match(commands, count_frames(data), peer)
        finally:
            peer.close()
            self._consumer.answers()
        self._undo(
            {
                command.code
                for command in commands
                if command.code in _OF_OPERATORS and BYSTANDER in command.ext_fields.values()
            }
        )

    def _undo(self, codes: set[int]) -> None:
        """The bystander's topic is as before; a new one begins at 0, and nothing else does."""
        if not codes:
            return
        self._create(BYSTANDER)
        end = QueueTableReader(self._fds[0]).offsets(BYSTANDER, 0)[1]
        if end == 0 and Code.DELETE_TOPIC_IN_BROKER in codes:
            self._next_offset = 0

    def _match(self, commands: list[RemotingCommand], most: int, peer: ServedConnection) -> None:
        answers = [answer for answer in peer.answers() if answer.is_response]
        if len(commands) == MOST_COMMANDS:  # There may be more.
            return
        asked = [
            command
            for command in commands
            if not (command.is_response or command.is_oneway or command.code in _UNANSWERED)
        ]
        # By number: a header may leave its opaque out, and is given another one at each reading.
        # A fast route does not look at names of fields that it does not know: they may be no UTF-8.
        assert len(answers) <= most, f"{len(answers)} answers to {most}"
        if peer.connection.is_open:
            codes = [command.code for command in asked]
            assert len(answers) >= len(asked), f"{len(answers)} answers to {codes}"

    def check(self) -> None:
        """The bystander's message is stored at its offset, and read."""
        body = b"%08d" % self._next_offset
        fields = send_fields(topic=BYSTANDER, queue_id=0, properties="")
        self._neighbour.feed(self._signed(request(Code.SEND_MESSAGE_V2, fields, body)))
        self.turn()
        (answer,) = self._neighbour.answers()
        assert answer.code == 0, answer
        offset = int(answer.ext_fields["queueOffset"])
        assert offset == self._next_offset, f"queue offset {offset}, not {self._next_offset}"
        self._next_offset += 1
        pull = pull_request(topic=BYSTANDER, queueOffset=offset, consumerGroup="bystanders")
        self._neighbour.feed(self._signed(request(pull.code, pull.ext_fields)))
        self.turn()
        (answer,) = self._neighbour.answers()
        assert answer.code == 0, answer
        assert body in answer.body

    def _create_member(self) -> None:
        rights = json.dumps({"policies": [{"entries": _ENTRIES}]}).encode()
        for code, fields, body in (
            (Code.AUTH_CREATE_USER, {"username": "membership"}, b'{"password":"member-secret"}'),
            (Code.AUTH_CREATE_ACL, {"subject": "User:membership"}, rights),
        ):
            self._consumer.feed(self._signed(request(code, fields, body), admin=True))
            self.turn()
            (answer,) = self._consumer.answers()
            assert answer.code == 0, answer

    def _signed(self, data: bytes, *, admin: bool = False) -> bytes:
        if self._access is Access.OPEN:
            return data
        commands = frames_of(data)
        if not commands:
            return data
        for command in commands:
            signer = _SIGNERS[admin] if admin or self._access is Access.SIGNED else _MEMBER
            signer.sign(command)
        return b"".join(map(encode_command, commands))

    def close(self) -> None:
        """Not orderly: the directory goes."""
        controller = self.controller
        controller._server.shutdown()
        with contextlib.suppress(Exception):
            controller._store.log.close()
        controller.loop.close()
        self._store._derived.close()
        self._store._flush._flusher.close()
        self._store._allocate._stop_preparing()
        self._store._derived.source.close()
        for channel in self._channels:
            channel.close()
        for bell in self._bells.values():
            os.close(bell.event_fd)
        for fd in self._fds:
            os.close(fd)
        with contextlib.suppress(Exception):
            close_page(self.page)


def _fail(service: Any, error: Exception) -> None:
    raise AssertionError(f"service {service.name}: {error}") from error


def _host_of(data: bytes) -> str:
    return "127.0.0.1" if len(data) % 4 else "10.1.2.3"


def _properties(number: int) -> str:
    return f"KEYS\x01k{number}\x02TAGS\x01t{number % 2}\x02UNIQ_KEY\x01u{number}\x02a\x01{number}"


def _heartbeat() -> bytes:
    subscriptions = [
        SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in TOPICS[:2]
    ]
    consumers = [
        ConsumerData(group_name=group, subscription_data_set=subscriptions) for group in GROUPS
    ]
    body = HeartbeatData(
        client_id="10.0.0.1@1",
        consumer_data_set=consumers,
        producer_data_set=[ProducerData(group_name=group) for group in GROUPS],
    )
    command = RemotingCommand.request(Code.HEART_BEAT, {}, body.to_json_bytes())
    command.version = 409
    return encode_command(command)
