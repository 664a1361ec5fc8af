"""Bad input against a real broker: a clear answer or a closed connection, and nobody else notices.

One broker process serves the whole module. A bystander's connection must live through every test,
and no file may appear outside the store directory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_code import RequestCode as Code
from tests.broker.hot_path_world import pull_request, send_request
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 10.0
ODD_NAMES = [
    "../up",
    "../../../etc/x",
    "..",
    ".",
    "/absolute",
    "a/b",
    "nul\0byte",
    "",
    "x" * 300,
    "white space",
    "ünïcode",
    "%RETRY%../../up",
]
ODD_GROUPS = [*ODD_NAMES, "/", "-1", "DELAY\x01-9\x02", "%RETRY%" * 10, "g" * 120, "g" * 121]


class Peer:
    """A blocking client over one connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address = "{}:{}".format(*self.sock.getsockname())
        self._decoder = FrameDecoder()

    def send(self, *commands: RemotingCommand | bytes) -> None:
        parts = (c if isinstance(c, bytes) else encode_command(c) for c in commands)
        self.sock.sendall(b"".join(parts))

    def receive(self) -> RemotingCommand:
        """The next answer; what the broker asks of its clients (40) is passed over."""
        while not (command := self._receive_any()).is_response:
            assert command.code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        return command

    def _receive_any(self) -> RemotingCommand:
        while (command := self._decoder.next_command()) is None:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError(f"{self.address}: closed by the broker")
            self._decoder.feed(data)
        return command

    def call(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        answer = self.receive()
        assert (answer.opaque, answer.is_response) == (command.opaque, True)
        return answer

    def call_all(self, commands: list[RemotingCommand]) -> dict[int, RemotingCommand]:
        """Answers by opaque; they may overtake each other."""
        self.send(*commands)
        answers = [self.receive() for _ in commands]
        return {answer.opaque: answer for answer in answers}

    def is_closed_by_broker(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()


class RealBroker:
    """`python -m broker` with everything it owns under `inner`."""

    def __init__(self, outer: Path) -> None:
        self.outer, self.inner = outer, outer / "middle" / "inner"
        (self.inner / "cwd").mkdir(parents=True)
        self.store, self.logs = self.inner / "store", self.inner / "logs"
        settings = {
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "metricsPort": "0",
            "embeddedNamesrvPort": "0",
            "storePathRootDir": str(self.store),
            "logDir": str(self.logs),
            "mappedFileSizeCommitLog": str(16 << 20),
            "mappedFileSizeConsumeQueue": "20000",
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
            "diskMaxUsedSpaceRatio": "95",
        }
        conf = self.inner / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._output = self.inner / "output"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.inner),
            "ROCKETMQ_HOME": str(ROOT),
            "ROCKETMQ_RUN_DIR": str(self.inner / "run"),
            "PYTHONPATH": str(ROOT),
        }
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "broker", "-c", str(conf)],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=self.inner / "cwd",
                start_new_session=True,
            )
        wait_until(lambda: b"boot success" in self.output() or self.process.poll() is not None, 30)
        found = re.search(rb"ports: main (\d+), vip (\d+)", self.output())
        assert found, self.output().decode(errors="replace")
        self.port, self.vip_port = int(found.group(1)), int(found.group(2))

    def output(self) -> bytes:
        return self._output.read_bytes()

    def log_text(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.logs.glob("*.log"))

    def files_outside(self) -> set[str]:
        """Everything around the store, the logs left out."""
        found = set()
        for directory, names, files in os.walk(self.outer):
            if Path(directory) in (self.store, self.logs):
                names.clear()
                continue
            found |= {str(Path(directory) / name) for name in (*names, *files)}
        return found

    def names_in_store(self) -> set[str]:
        return {entry.name for entry in self.store.iterdir()}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    broker = RealBroker(tmp_path_factory.mktemp("bad-input"))
    try:
        yield broker
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(30) == 0
        assert not (broker.store / "abort").exists()
        check = [sys.executable, "-m", "store.check", str(broker.store)]
        judged = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
        assert judged.returncode == 0, judged.stdout + judged.stderr
    finally:
        if broker.process.poll() is None:
            os.killpg(broker.process.pid, signal.SIGKILL)
            broker.process.wait(10)


@pytest.fixture(scope="module")
def bystander(broker: RealBroker) -> Iterator[Peer]:
    """One connection for the whole module: that it lives proves that nothing was restarted."""
    peer = Peer(broker.port)
    assert peer.call(send_request(b"first", topic="Bystander")).code == 0
    yield peer
    peer.close()


@pytest.fixture(autouse=True)
def nobody_notices(broker: RealBroker, bystander: Peer) -> Iterator[None]:
    """Around every test: the bystander is served, and nothing appeared outside the store."""
    outside, inside = broker.files_outside(), broker.names_in_store()
    yield
    answer = bystander.call(send_request(b"after", topic="Bystander"))
    assert answer.code == 0
    assert broker.files_outside() == outside
    expected = {"abort", "lock", "checkpoint", "commitlog", "consumequeue", "index", "config"}
    expected |= {"queues.exit.deleted", "retention.json", "retention.json.tmp"}
    assert broker.names_in_store() <= inside | expected


@pytest.fixture
def peer(broker: RealBroker) -> Iterator[Peer]:
    peer = Peer(broker.port)
    yield peer
    peer.close()


# -- frames --------------------------------------------------------------------------------------


def frame(header: bytes, body: bytes = b"", serialize: int = 0) -> bytes:
    size = 4 + len(header) + len(body)
    return struct.pack(">iI", size, serialize << 24 | len(header)) + header + body


BAD_FRAMES = {
    "length 0": struct.pack(">iI", 0, 0),
    "length 1": struct.pack(">iI", 1, 0),
    "length 3": struct.pack(">iI", 3, 0),
    "negative length": struct.pack(">iI", -1, 0),
    "least length": struct.pack(">iI", -(2**31), 0),
    "16 MiB + 1": struct.pack(">iI", (16 << 20) - 3, 10),
    "2 GiB": struct.pack(">iI", 2**31 - 1, 10),
    "only four bytes, negative": struct.pack(">i", -5),
    "header longer than the frame": struct.pack(">iI", 20, 17) + bytes(16),
    "header of 16 MiB": struct.pack(">iI", 20, 0xFFFFFF) + bytes(16),
    "no header": struct.pack(">iI", 4, 0),
    "JSON that is none": frame(b"this is no JSON"),
    "half a JSON object": frame(b'{"code":310,"extFields":{"a":'),
    "a JSON array": frame(b"[1,2,3]"),
    "JSON that is no UTF-8": frame(b'{"code":310,"remark":"\xff\xfe"}'),
    "unknown serialize type": frame(b'{"code":11}', serialize=7),
    "serialize type 2": frame(b'{"code":11}', serialize=2),
    "serialize type 255": frame(b'{"code":11}', serialize=255),
    "binary remark of 2 GiB": frame(
        struct.pack(">hbhiii", 11, 0, 1, 1, 0, 2**31 - 1) + b"x", serialize=1
    ),
    "binary fields of -1": frame(struct.pack(">hbhiiii", 11, 0, 1, 1, 0, 0, -1), serialize=1),
    "binary header that is none": frame(b"\xff" * 40, serialize=1),
    "binary header too short": frame(b"\0" * 5, serialize=1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
}


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_what_is_no_frame_closes_its_connection(
    broker: RealBroker, peer: Peer, data: bytes
) -> None:
    assert peer.call(pull_request(topic="Bystander", queueOffset=99)).code == 21
    peer.send(data)
    assert peer.is_closed_by_broker()
    line = re.compile(rf"{re.escape(peer.address)}: connection closed: bad frame")
    wait_until(lambda: line.search(broker.log_text()))


def test_good_frames_before_a_bad_one_are_answered(peer: Peer) -> None:
    request = send_request(topic="Bystander")
    peer.send(request, BAD_FRAMES["negative length"])
    try:
        answer = peer.receive()
    except (EOFError, ConnectionResetError):
        return
    assert (answer.opaque, answer.code) == (request.opaque, 0)


@pytest.mark.parametrize("size", [10, 300_000])
def test_half_a_frame_and_silence(broker: RealBroker, bystander: Peer, size: int) -> None:
    peers = [Peer(broker.port) for _ in range(5)]
    requests = [send_request(bytes(size), topic="Bystander") for _ in peers]
    for peer, request in zip(peers, requests, strict=True):
        peer.send(encode_command(request)[: -size // 2])
    for _ in range(10):
        assert bystander.call(send_request(b"during", topic="Bystander")).code == 0
    for peer, request in zip(peers, requests, strict=True):
        peer.send(encode_command(request)[-size // 2 :])
        assert (peer.receive().opaque) == request.opaque
        peer.close()


def test_half_a_frame_and_gone(broker: RealBroker) -> None:
    for cut in (1, 3, 4, 7, 8, 20, -1):
        peer = Peer(broker.port)
        peer.send(encode_command(send_request(topic="Bystander"))[:cut])
        peer.close()


@pytest.mark.fault(37)
@pytest.mark.parametrize("serialize", list(SerializeType))
def test_one_byte_at_a_time(peer: Peer, serialize: SerializeType) -> None:
    request = send_request(topic="Bystander", serialize=serialize)
    for byte in encode_command(request):
        peer.send(bytes((byte,)))
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (request.opaque, 0)


@pytest.mark.fault(37)
def test_a_thousand_frames_in_one_write(peer: Peer) -> None:
    requests = [
        send_request(b"%d" % n, topic="Thousand", queue_id=0)
        if n % 2
        else RemotingCommand.request(Code.GET_MAX_OFFSET, {"topic": "Thousand", "queueId": "0"})
        for n in range(1000)
    ]
    answers = peer.call_all(requests)
    assert {answers[request.opaque].code for request in requests} == {0}
    sends = [answers[r.opaque] for r in requests if r.code == Code.SEND_MESSAGE_V2]
    assert [int(a.ext_fields["queueOffset"]) for a in sends] == list(range(500))


# -- sends and pulls -----------------------------------------------------------------------------


@pytest.mark.fault(39)
@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "../up"}, 1, "illegal characters"),
        ({"topic": "nul\0byte"}, 1, "illegal characters"),
        ({"topic": "x" * 300}, 1, "longer than topic max length"),
        ({"topic": " "}, 1, "blank"),
        ({"queue_id": -1}, 0, ""),
        ({"queue_id": 10**9}, 1, "queueId[1000000000] is illegal"),
        ({"queue_id": "1" * 5000}, 1, "queueId"),
        ({"queue_id": "٣"}, 1, "queueId"),
        ({"sys_flag": 2**31}, 1, "sysFlag"),
        ({"born_timestamp": "9" * 19}, 1, "bornTimestamp"),
        ({"born_timestamp": "9" * 4000}, 1, "bornTimestamp"),
        ({"flag": "9" * 5000}, 1, "flag"),
        ({"properties": "K\x01" + "v" * 33_000}, 13, "properties of"),
        ({"properties": "DELAY\x01three"}, 13, "expected a level from 1 to 18"),
        ({"sys_flag": 4}, 13, "has no property TRAN_MSG=true"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "forbidden"),
        ({"topic": "New", "default_topic": "None"}, 17, "not exist"),
        ({"batch": "true"}, 13, "batch"),
    ],
)
@pytest.mark.parametrize("serialize", list(SerializeType))
def test_a_bad_send_is_refused_in_words(
    peer: Peer, fields: dict[str, Any], code: int, words: str, serialize: SerializeType
) -> None:
    changes = {"topic": "Bystander", **fields}
    answer = peer.call(send_request(serialize=serialize, **changes))
    assert answer.code == code
    assert words in (answer.remark or "")


def test_a_body_over_max_message_size(peer: Peer) -> None:
    answer = peer.call(send_request(bytes((4 << 20) + 1), topic="Bystander"))
    assert answer.code == 13
    assert "maxMessageSize 4194304" in (answer.remark or "")
    assert peer.call(send_request(bytes(4 << 20), topic="Bystander")).code == 0


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "../up"}, 17, "not exist"),
        ({"topic": "nul\0"}, 17, "not exist"),
        ({"topic": "x" * 300}, 17, "not exist"),
        ({"queueId": -1}, 1, "queueId[-1] is illegal"),
        ({"queueId": 10**9}, 1, "queueId[1000000000] is illegal"),
        ({"queueOffset": "9" * 30}, 1, "queueOffset"),
        ({"commitOffset": "9" * 4000, "sysFlag": 5}, 1, "commitOffset"),
        ({"maxMsgNums": 2**31 - 1}, 0, ""),
        ({"maxMsgNums": 10**18}, 1, "maxMsgNums"),
        ({"maxMsgNums": -5}, 0, ""),
        ({"subscription": "||"}, 23, "parse"),
        ({"subscription": "a||" * 100_000}, 20, ""),
        ({"expressionType": "SQL92"}, 1, "SQL92"),
        ({"consumerGroup": "../../g"}, 26, "subscription group"),
    ],
)
def test_a_bad_pull_is_answered(peer: Peer, fields: dict[str, Any], code: int, words: str) -> None:
    answer = peer.call(pull_request(**{"topic": "Bystander", **fields}))
    assert answer.code == code
    assert words in (answer.remark or "")


def test_pulls_on_the_vip_port_are_not_served(broker: RealBroker) -> None:
    peer = Peer(broker.vip_port)
    assert peer.call(pull_request(topic="Bystander")).code == 3
    assert peer.call(send_request(topic="Bystander")).code == 0
    peer.close()


def create_topic(name: str, perm: int = 6) -> RemotingCommand:
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return RemotingCommand.request(Code.UPDATE_AND_CREATE_TOPIC, fields)


def test_a_topic_without_permission(peer: Peer) -> None:
    assert peer.call(create_topic("Closed", perm=0)).code == 0
    answer = peer.call(pull_request(topic="Closed"))
    assert (answer.code, "forbidden" in (answer.remark or "")) == (16, True)


# -- names in other requests ---------------------------------------------------------------------


@pytest.mark.fault(39)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_topics_with_odd_names_are_neither_made_nor_deleted(peer: Peer, name: str) -> None:
    made = peer.call(create_topic(name))
    assert made.code == 1
    assert "topic" in (made.remark or "")
    request = RemotingCommand.request(Code.DELETE_TOPIC_IN_BROKER, {"topic": name})
    assert peer.call(request).code == 1
    listed = peer.call(RemotingCommand.request(Code.GET_ALL_TOPIC_CONFIG))
    assert name not in json.loads(listed.body)["topicConfigTable"]


def heartbeat(group: str, topic: str) -> RemotingCommand:
    body = {
        "clientID": f"client@{group}",
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
                "unitMode": False,
            }
        ],
        "producerDataSet": [{"groupName": group}],
    }
    return RemotingCommand.request(Code.HEART_BEAT, {}, json.dumps(body).encode())


_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


def is_legal(name: str) -> bool:
    """RocketMQ's rule for groups, as its brokers' TopicValidator has it since 5.5."""
    return re.fullmatch(r"[%|a-zA-Z0-9_-]{1,120}", name) is not None


@pytest.mark.parametrize("name", ODD_GROUPS)
def test_heartbeats_of_groups_with_odd_names(peer: Peer, name: str) -> None:
    answer = peer.call(heartbeat(name, name))
    # A name that is too long for any field is refused by its length, before it is looked at.
    code, words = (29, "The specified group") if len(name) <= 255 else (1, "over the limit of 255")
    assert answer.code == (0 if is_legal(name) else code)
    assert is_legal(name) or words in (answer.remark or "")
    retry = f"%RETRY%{name}"
    answer = peer.call(send_request(topic=retry))
    assert answer.code in (1, 26) or is_legal(name)
    pulled = peer.call(pull_request(topic=retry, consumerGroup=name))
    assert pulled.code in (0, 17, 19, 21, 26)
    deleted = RemotingCommand.request(Code.DELETE_TOPIC_IN_BROKER, {"topic": retry})
    assert peer.call(deleted).code in (0, 1)
    gone = {"groupName": name, "removeOffset": "true"}
    request = RemotingCommand.request(Code.DELETE_SUBSCRIPTIONGROUP, gone)
    assert peer.call(request).is_response


@pytest.mark.parametrize("level", [-1, 1])
@pytest.mark.parametrize("name", ODD_GROUPS)
def test_what_an_odd_group_sends_back_is_refused_or_can_be_pulled(
    peer: Peer, name: str, level: int
) -> None:
    sent = peer.call(send_request(b"back", topic="Bystander"))
    offset = int(sent.ext_fields["msgId"][-16:], 16)
    fields = {"group": name, "offset": str(offset), "delayLevel": str(level)}
    answer = peer.call(RemotingCommand.request(Code.CONSUMER_SEND_MSG_BACK, fields))
    home = f"%DLQ%{name}" if level < 0 else f"%RETRY%{name}"
    if not is_legal(name):
        assert answer.code == 26
        assert "subscription group not exist" in (answer.remark or "")
        return
    assert answer.code == 0
    wait_until(
        lambda: (
            peer.call(pull_request(topic=home, consumerGroup=name, suspendTimeoutMillis=0)).code
            == 0
        )
    )


@pytest.mark.fault(39)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_no_request_makes_a_group_with_an_odd_name(
    broker: RealBroker, peer: Peer, name: str
) -> None:
    """200, 225, 314, 352, 11: the tables hold legal names only."""
    row = {"groupName": name, "retryQueueNums": 1}
    both = {"groupConfigList": [{"groupName": "fine"}, row]}
    clone = {"srcGroup": "G", "destGroup": name, "topic": "Bystander", "offline": "true"}
    requests = [
        RemotingCommand.request(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(row).encode()
        ),
        RemotingCommand.request(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, json.dumps(both).encode()
        ),
        RemotingCommand.request(Code.CLONE_GROUP_OFFSET, clone),
        RemotingCommand.request(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name}),
        pull_request(topic="Bystander", consumerGroup=name, queueOffset=0),
    ]
    codes = [peer.call(request).code for request in requests]
    assert 0 not in codes or is_legal(name)
    for code, table in (
        (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
        (Code.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
        (Code.GET_ALL_CONSUMER_OFFSET, "offsetTable"),
    ):
        body = json.loads(peer.call(RemotingCommand.request(code)).body)
        names = [part for key in body[table] for part in key.split("@")]
        assert [found for found in names if not _NAME.fullmatch(found)] == []


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("queue_id", ["0", "-1", "1000000000", "99999999999999"])
def test_offsets_of_odd_topics(peer: Peer, name: str, queue_id: str) -> None:
    fields = {"topic": name, "queueId": queue_id, "consumerGroup": name, "commitOffset": "7"}
    fields |= {"timestamp": "1", "key": "k", "maxNum": "10"}
    fields |= {"beginTimestamp": "0", "endTimestamp": "9999999999999"}
    codes = [
        Code.QUERY_CONSUMER_OFFSET,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_EARLIEST_MSG_STORETIME,
        Code.QUERY_MESSAGE,
    ]
    answers = peer.call_all([RemotingCommand.request(code, fields) for code in codes])
    assert len(answers) == len(codes)
    too_large = queue_id == "99999999999999"
    for answer in answers.values():
        assert answer.code in (0, 1, 17, 22, 26)
        assert answer.code != 0 or not too_large or not answer.ext_fields.get("offset")


@pytest.mark.parametrize("offset", ["-1", "0", "9" * 18, "9" * 30, "x"])
def test_messages_by_odd_offsets(peer: Peer, offset: str) -> None:
    request = RemotingCommand.request(Code.VIEW_MESSAGE_BY_ID, {"offset": offset})
    assert peer.call(request).code in (0, 1)
    request = RemotingCommand.request(Code.VIEW_MESSAGE_BY_ID, {"offset": "1"})
    assert peer.call(request).code == 1


# -- every code ----------------------------------------------------------------------------------

_GARBAGE = "../\x01{[\"'\u2028"
_FIELD_NAMES = re.findall(
    r"\w+",
    """topic queueId consumerGroup producerGroup group groupName offset commitOffset
queueOffset maxMsgNums sysFlag subVersion timestamp key maxNum beginTimestamp endTimestamp perm
readQueueNums writeQueueNums topicFilterType order defaultTopic clientID clientId brokerName
statsName statsKey isForce removeOffset msgId tranStateTableOffset commitLogOffset
commitOrRollback originMsgId originTopic delayLevel maxReconsumeTimes unitMode extFields
requestCode expressionType subscription srcGroup destGroup offline filterServerAddr jstackEnable
a b c d e f g h i j k l m n""",
)
GARBAGE_HEADERS: dict[str, dict[str, str] | None] = {
    "no extFields": None,
    "empty extFields": {},
    "garbage": dict.fromkeys(_FIELD_NAMES, _GARBAGE),
    "empty texts": dict.fromkeys(_FIELD_NAMES, ""),
    "large numbers": dict.fromkeys(_FIELD_NAMES, "9" * 40),
    "minus one": dict.fromkeys(_FIELD_NAMES, "-1"),
}
GARBAGE_BODIES = {
    "none": b"",
    "bytes": bytes(range(256)),
    "half JSON": b'{"clientID":"x","consumerDataSet":[{"gro',
    "a number": b"17",
    "null": b"null",
    "nested": b"[" * 3000,
    "other types": b'{"clientId":5,"clientID":[],"consumerDataSet":7,"mqSet":{},"consumerGroup":1}',
}


@pytest.mark.parametrize("serialize", list(SerializeType))
@pytest.mark.parametrize("header", GARBAGE_HEADERS.values(), ids=GARBAGE_HEADERS.keys())
@pytest.mark.parametrize("body", GARBAGE_BODIES.values(), ids=GARBAGE_BODIES.keys())
def test_every_code_answers_garbage(
    peer: Peer, serialize: SerializeType, header: dict[str, str] | None, body: bytes
) -> None:
    codes = [*Code, -1, 0, 9999, 2**31 - 1]
    requests = []
    for code in codes:
        request = RemotingCommand.request(code, header, body)
        request.serialize_type = serialize
        requests.append(request)
    if serialize is SerializeType.ROCKETMQ:
        requests = [r for r in requests if r.code < 2**15]
    answers = peer.call_all(requests)
    for request in requests:
        answer = answers[request.opaque]
        assert answer.code == 0 or answer.remark, f"code {request.code}: no remark"


BODY_IS_DECODED = (
    Code.VIEW_MESSAGE_BY_ID,
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_BROKER_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.LOCK_BATCH_MQ,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_TOPIC_STATS_INFO,
    Code.GET_CONSUMER_CONNECTION_LIST,
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_CONSUME_STATS,
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Code.QUERY_TOPIC_CONSUME_BY_WHO,
    Code.QUERY_CONSUME_TIME_SPAN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    Code.GET_CONSUMER_RUNNING_INFO,
    Code.QUERY_CORRECTION_OFFSET,
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.VIEW_BROKER_STATS_DATA,
    Code.GET_BROKER_CONSUME_STATS,
    Code.QUERY_CONSUME_QUEUE,
    Code.GET_ALL_PRODUCER_INFO,
    Code.QUERY_TOPICS_BY_CONSUMER,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
    Code.GET_TOPIC_CONFIG,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
    Code.GET_BROKER_HA_STATUS,
    Code.GET_BROKER_EPOCH_CACHE,
    Code.QUERY_ASSIGNMENT,
)
"""Whose answer's body MQClientAPIImpl of 4.9.8 or 5.3.3, or SlaveSynchronize, decodes."""


@pytest.mark.parametrize("number", ["-1", "0", "1", "9" * 9, "9" * 18])
@pytest.mark.parametrize("group", ["", "G", "Nobody"])
def test_no_success_lacks_the_body_that_clients_decode(peer: Peer, number: str, group: str) -> None:
    """Odd numbers and groups, about a topic that is there."""
    assert peer.call(send_request(topic="Bystander")).code == 0
    names = ("group", "groupName", "consumerGroup", "producerGroup", "compareGroup")
    fields = dict.fromkeys(_FIELD_NAMES, number) | dict.fromkeys(names, group)
    fields |= {"topic": "Bystander", "isForce": "true", "isOrder": "false", "queueId": "0"}
    fields |= {"index": number, "count": number}
    body = json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": []}).encode()
    requests = [RemotingCommand.request(code, fields, body) for code in BODY_IS_DECODED]
    index = {"topic": "Bystander", "queueId": "0", "index": "0", "count": number}
    requests.append(RemotingCommand.request(Code.QUERY_CONSUME_QUEUE, index))
    answers = peer.call_all(requests)
    assert any(answer.code == 0 for answer in answers.values())
    for request in requests:
        answer = answers[request.opaque]
        assert answer.body or answer.code != 0, f"code {request.code}: success without a body"


def test_oneway_garbage_is_never_answered(peer: Peer) -> None:
    for code in (*Code, 9999):
        peer.send(RemotingCommand.request(code, {"topic": _GARBAGE}, b"{[", oneway=True))
    request = send_request(topic="Bystander")
    peer.send(request)
    assert peer.receive().opaque == request.opaque


def test_answers_nobody_asked_for_are_ignored(peer: Peer) -> None:
    for code in (0, 1, 11, 310):
        request = send_request(topic="Bystander")
        request.code, request.flag = code, 1
        peer.send(request)
    assert peer.call(send_request(topic="Bystander")).code == 0


def test_zz_no_request_ended_in_an_unexpected_exception(broker: RealBroker) -> None:
    """The last one: whatever was sent above was refused on purpose, not by accident."""
    text = broker.log_text()
    found = re.findall(
        r"request (\d+) failed\n(?:.*\n)*?(\w+(?:\.\w+)*(?:Error|Exception): .*)", text
    )
    assert sorted(set(found)) == []
    assert "restart" not in text.lower() or "starting again" not in text
