"""Process `remoting` of a master, in this process and without threads: every request code.

A BrokerController of real parts over a real store; `store` is stepped by hand. Two addresses ask:
the fuzzer's connection (a new one for each input) and a bystander, whose messages have to be
stored and read whatever the other one did. The fuzzer knows the bystander's topic and may send to
it: what it was told of its own messages there is counted.
"""

from __future__ import annotations

import enum
import json
import zlib
from pathlib import Path

from ipc.queue_table import QueueTableReader
from remoting.body.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from tests.broker.hot_path_world import pull_request, send_fields
from tests.broker.served_broker import (
    FILE_SIZE,
    SIGNERS,
    USERS_ON,
    ServedBroker,
    accounts_of,
)
from tests.fuzz.mutation import MOST_COMMANDS, count_frames, frames_of
from tests.fuzz.served_connection import (
    ServedConnection,
    request,
)

BYSTANDER = "Bystander-5d1f"
TOPICS = ("GTopic", "GBatchTopic", "GTxTopic", "GRetryTopic", "GDlqTopic")
GROUPS = ("G_group", "G_tx_group", "G_retry_group")
_ENTRIES = [
    {"resource": f"{kind}:*", "actions": ["All"], "decision": "Allow"}
    for kind in ("Topic", "Group")
]
ACCOUNTS = accounts_of("GTopic=PUB|SUB, Bystander-5d1f=PUB|SUB", "G_group=SUB, bystanders=SUB")
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


class BrokerWorld(ServedBroker):
    """See the module. access: requests are signed after the fuzzer changed them: it cannot guess
    signatures, and what comes behind them is looked at here."""

    def __init__(
        self, root: Path, *, access: Access = Access.OPEN, file_size: int = FILE_SIZE
    ) -> None:
        self._access = access
        with_acl = access in (Access.SIGNED, Access.ACCOUNTS)
        if with_acl:
            (root / "conf").mkdir()
            (root / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
        users = USERS_ON if access is Access.USERS else {}
        settings = {"aclEnable": str(with_acl).lower(), **users}
        super().__init__(root, settings, file_size=file_size)
        self._next_offset = 0
        self._told: set[int] = set()
        self._told_all = True
        self._consumer = self.connect()
        if access is Access.USERS:
            self._create_member()
        for topic in (*TOPICS, BYSTANDER):
            self._create(topic)
        self._consumer.feed(self._signed(_heartbeat(), admin=True))
        self._neighbour = self.connect()
        for number in range(12):
            topic = TOPICS[number % 3]
            fields = send_fields(topic=topic, queue_id=number % 4, properties=_properties(number))
            self._neighbour.feed(self._signed(request(Code.SEND_MESSAGE_V2, fields, b"x" * 40)))
        self.turn()
        self._neighbour.answers()
        self._consumer.answers()
        self.check()

    # -- construction --------------------------------------------------------------------------

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

    # -- inputs --------------------------------------------------------------------------------

    def run(self, data: bytes) -> None:
        """One connection's bytes; every request of it is answered by the end of the longest
        wait, unless it is oneway or the connection is closed."""
        commands = frames_of(data)
        if self._access is Access.SIGNED:
            data = self._signed(data, admin=bool(zlib.crc32(data) & 1))
        peer = self.connect(_host_of(data))
        body = commands[-1].body if commands else b""
        self._consumer.answer = peer.answer = (len(data) % 2, body)
        try:
            peer.feed(data)
            self.turn()
            self.clock.advance(_HOLD_MS)
            while self.controller._pull.hold_service.scan(self.clock.monotonic_ms()):
                pass
            self.controller._messages.append_queue.look()
            self.turn()
            answers = [answer for answer in peer.answers() if answer.is_response]
            if len(commands) < MOST_COMMANDS:  # Else there may be more.
                _match(commands, count_frames(data), answers, is_open=peer.connection.is_open)
            naming = [each for each in commands if BYSTANDER in each.ext_fields.values()]
            if naming:
                self._hear(naming, answers, peer)
        finally:
            peer.close()
            self._consumer.answers()
        self._undo({each.code for each in naming if each.code in _OF_OPERATORS})

    def _hear(
        self, naming: list[RemotingCommand], answers: list[RemotingCommand], peer: ServedConnection
    ) -> None:
        """Where the fuzzer's messages to the bystander's topic are, as their answers say. `naming`:
        the requests with the topic's name. Who asks for no answer, or is cut off, hears nothing."""
        for answer in answers:
            if answer.ext_fields.get("queueId") == "0" and "queueOffset" in answer.ext_fields:
                first = int(answer.ext_fields["queueOffset"])
                messages = answer.ext_fields.get("msgId", "").count(",") + 1
                self._told.update(range(first, first + messages))
        if not peer.connection.is_open or any(map(_is_unanswered, naming)):
            self._told_all = False

    def _undo(self, codes: set[int]) -> None:
        """The bystander's topic is as before; a new one begins at 0, and nothing else does."""
        if not codes:
            return
        self._create(BYSTANDER)
        end = QueueTableReader(self._fds[0]).offsets(BYSTANDER, 0)[1]
        if end == 0 and Code.DELETE_TOPIC_IN_BROKER in codes:
            self._next_offset = 0

    def check(self) -> None:
        """The bystander's message is stored at its offset, and read."""
        body = b"%08d" % self._next_offset
        fields = send_fields(topic=BYSTANDER, queue_id=0, properties="")
        self._neighbour.feed(self._signed(request(Code.SEND_MESSAGE_V2, fields, body)))
        self.turn()
        (answer,) = self._neighbour.answers()
        assert answer.code == 0, answer
        offset = int(answer.ext_fields["queueOffset"])
        self._judge(offset)
        self._next_offset = offset + 1
        pull = pull_request(topic=BYSTANDER, queueOffset=offset, consumerGroup="bystanders")
        self._neighbour.feed(self._signed(request(pull.code, pull.ext_fields)))
        self.turn()
        (answer,) = self._neighbour.answers()
        assert answer.code == 0, answer
        assert body in answer.body

    def _judge(self, offset: int) -> None:
        """`offset` of the bystander's message follows its last one and what the fuzzer was told."""
        words = f"queue offset {offset}, not {self._next_offset}; the fuzzer's: {self._told}"
        assert offset >= self._next_offset, words
        if self._told_all:
            assert self._told.issuperset(range(self._next_offset, offset)), words
        self._told, self._told_all = set(), True

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
            other = "application" if self._access is Access.SIGNED else "member"
            signer = SIGNERS["operator" if admin else other]
            signer.sign(command)
        return b"".join(map(encode_command, commands))


def _match(
    commands: list[RemotingCommand], most: int, answers: list[RemotingCommand], *, is_open: bool
) -> None:
    """Every request has its answer, and nothing else has one; most: how many frames there were."""
    asked = [
        command for command in commands if not (command.is_response or _is_unanswered(command))
    ]
    # By number: a header may leave its opaque out, and is given another one at each reading.
    # A fast route does not look at names of fields that it does not know: they may be no UTF-8.
    assert len(answers) <= most, f"{len(answers)} answers to {most}"
    if is_open:
        codes = [command.code for command in asked]
        assert len(answers) >= len(asked), f"{len(answers)} answers to {codes}"


def _is_unanswered(command: RemotingCommand) -> bool:
    return command.is_oneway or command.code in _UNANSWERED


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
