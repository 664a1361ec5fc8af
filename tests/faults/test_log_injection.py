"""Whatever peers call themselves, topics, groups and keys: a log line stays one printable line of
bounded length that cannot pose as another, and a scrape stays parseable.

Real processes: a broker with ACL and one without, each with its name server. Every word that is
sent has a mark, so that the test knows which of them came into a log.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conf.logging_setup import MAX_MESSAGE_CHARACTERS
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.signature import RequestSigner
from tests.broker.acl.test_acl_served import ACCOUNTS, SignedClient, client, home_of
from tests.broker.hot_path_world import send_fields
from tests.namesrv.namesrv_peer import registration
from tests.support.our_broker import OurBroker

pytestmark = pytest.mark.fault(46)

MARK: Final = "injected"
FORGED: Final = "1999-12-31 00:00:00,000 WARNING Loop broker.audit - 10.0.0.1 changed everything"
_ENDS: Final = ("\n", "\r", "\r\n", "\v", "\f", "\x85", "\u2028", "\u2029", "\x1b[2J\x1b[1A\r")
WORDS: Final = (
    *(f"{MARK}{end}{FORGED}" for end in _ENDS),
    f"{MARK}\u202e\u200b\x07\x08\x00",
    f"{MARK}{'x' * 20_000}",
    f'{MARK}"}} 1\nrocketmq_forged_total 1',
    f"{MARK}%s%n%d{{}}${{jndi:ldap://127.0.0.1/a}}",
)
_BEGINNING: Final = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+ [\w.]+ - "
)
_OVERHEAD: Final = 100
"""Characters of "... (9 characters more)"; escapes of what was cut off count in full."""
_ESCAPED: Final = 10
_HELD: Final = (11, 39, 361)
"""Requests whose answer may take as long as the client says: sent one-way."""


def fields_of(word: str) -> dict[str, str]:
    """Every field that some request names a topic, a group, a client or a broker with."""
    names = ("topic", "group", "consumerGroup", "producerGroup", "subscriptionGroupName")
    names += ("groupName", "clientId", "clientGroup", "key", "namespace", "value", "brokerName")
    names += ("clusterName", "b", "a", "topicName", "isOffline", "originTopic", "originMsgId")
    fields = dict.fromkeys(names, word)
    numbers = ("queueId", "offset", "queueOffset", "commitOffset", "maxMsgNums", "sysFlag", "perm")
    numbers += (
        "readQueueNums",
        "writeQueueNums",
        "timestamp",
        "delayLevel",
        "brokerId",
        "subVersion",
    )
    numbers += ("suspendTimeoutMillis", "topicSysFlag", "maxNum", "beginTimestamp", "endTimestamp")
    fields |= dict.fromkeys(numbers, "1")
    return fields | {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}


def bodies_of(word: str) -> dict[int, bytes]:
    """Bodies of the requests that have one."""
    consumer = {
        "groupName": word,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": word, "subString": word, "expressionType": word}],
    }
    heartbeat = {
        "clientID": word,
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": word}],
    }
    honest = consumer | {"groupName": "honest", "subscriptionDataSet": []}
    lock = {"consumerGroup": word, "clientId": word, "mqSet": [{"topic": word, "queueId": 0}]}
    group = {"groupName": word, "consumeEnable": True}
    return {
        25: f"{word}=1\n".encode(),
        34: json.dumps(heartbeat).encode(),
        35: json.dumps(heartbeat | {"consumerDataSet": [honest]}).encode(),
        41: json.dumps(lock).encode(),
        42: json.dumps(lock).encode(),
        46: json.dumps({"clientId": word, "group": word}).encode(),
        200: json.dumps(group).encode(),
        318: f"{word}=1\n".encode(),
    }


def sends_of(word: str) -> Iterator[RemotingCommand]:
    """Every code that anybody serves, with the word wherever one can be."""
    bodies = bodies_of(word)
    for code in (*range(10, 55), 100, 101, 102, *range(104, 107), 200, *range(201, 230), 300):
        yield RemotingCommand.request(
            code, fields_of(word), bodies.get(code, b""), oneway=code in _HELD
        )
    for code in (*range(301, 365), 901, 904, 906, 907, 28_906, 28_907, 77_777):
        yield RemotingCommand.request(
            code, fields_of(word), bodies.get(code, b""), oneway=code in _HELD
        )
    heartbeat = RemotingCommand.request(34, {}, bodies[34].replace(b'"groupName"', b'"other"'))
    yield heartbeat
    yield RemotingCommand.request(34, {}, bodies[35].replace(json.dumps(word).encode(), b'"p"', 2))
    send = send_fields(topic="Plain", properties=f"KEYS\x01{word}\x02TAGS\x01{word}\x02")
    yield RemotingCommand.request(310, send, b"x")
    yield RemotingCommand.request(310, send | {"a": word}, b"x")
    named = registration("named")
    named.ext_fields["brokerName"] = word
    yield named
    addressed = registration("addressed")
    addressed.ext_fields["brokerAddr"] = word
    yield addressed
    command = RemotingCommand.request(310, send | {"AccessKey": word, "Signature": word}, b"x")
    command.remark = word
    yield command
    # Answers that nobody waits for, and one whose code is none.
    yield RemotingCommand.request(-1, fields_of(word), b"").response(0, word)


def say_all(address: tuple[str, int], by: RequestSigner | None) -> int:
    """Every request with every word; gives how many were answered. An attacker does not care about
    a connection that ends."""
    answered = 0
    for word in WORDS:
        talking = SignedClient(address, by)
        try:
            for command in sends_of(word):
                if by is not None and "AccessKey" not in command.ext_fields:
                    by.sign(command)
                if command.is_response:
                    talking._sock.sendall(encode_command(command))
                    continue
                talking._sock.sendall(encode_command(command))
                if command.is_oneway:
                    continue
                with contextlib.suppress(TimeoutError):
                    talking.take(command.opaque, 5)
                    answered += 1
        except (ConnectionError, BrokenPipeError):
            continue
        finally:
            talking.close()
    return answered


def http(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(data)
        with contextlib.suppress(OSError):
            sock.recv(65_536)


def raw(address: tuple[str, int]) -> None:
    """What is no frame: other protocols, a header that is no JSON."""
    for word in WORDS:
        for data in (word.encode("utf-8", "replace"), f"GET /{word} HTTP/1.1\r\n\r\n".encode()):
            with socket.create_connection(address, 5) as sock:
                sock.sendall(data)
        header = f'{{"code":10,"extFields":{{"x":{json.dumps(word)}}},"flag":"{MARK}'.encode()
        frame = len(header) + 4
        with socket.create_connection(address, 5) as sock:
            sock.sendall(frame.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
            with contextlib.suppress(OSError):
                sock.recv(1)


def wrong_lines(text: str) -> list[str]:
    """Lines that are no log lines: neither do they begin as one, nor as a line of a stack trace."""
    found = []
    for line in text.split("\n")[:-1]:
        is_log = _BEGINNING.match(line) is not None
        is_own = is_log and not line.startswith(FORGED[:30])
        most = MAX_MESSAGE_CHARACTERS * _ESCAPED + _OVERHEAD
        if not (is_own or line.startswith("  ")) or not line.isprintable() or len(line) > most:
            found.append(line[:300])
    return found


@pytest.fixture(params=[pytest.param("without ACL", marks=pytest.mark.long), "with ACL"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OurBroker]:
    settings: dict[str, object] = {}
    if request.param == "with ACL":
        settings = {"aclEnable": "true", "rocketmqHome": home_of(tmp_path / "home", ACCOUNTS)}
    with OurBroker(tmp_path / "broker", **settings).start() as made:
        yield made


def test_no_word_of_a_peer_is_a_log_line(broker: OurBroker, proved: Callable[[str], None]) -> None:
    operator = RequestSigner("operator", "operator-secret")
    answered = 0
    for port in ("main", "namesrv"):
        address = ("127.0.0.1", broker.ports[port])
        signers = (None, operator) if "aclEnable" in broker.settings else (None,)
        answered += sum(say_all(address, by) for by in signers)
        raw(address)
    raw(("127.0.0.1", broker.ports["ha"]))
    for word in WORDS:
        line = word.encode("utf-8", "replace")
        http(broker.ports["metrics"], b"GET /" + line + b" HTTP/1.1\r\n\r\n")
        http(broker.ports["metrics"], line + b" / HTTP/1.1\r\nHost: " + line + b"\r\n\r\n")
    with client(broker, operator) as after:
        assert after.send("TBW102", 0, b"still served").code == 0
    url = f"http://127.0.0.1:{broker.ports['metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert "rocketmq_forged" not in {family.name for family in families}
    assert broker.terminate(30) == 0
    logs = {path.name: path.read_bytes().decode() for path in broker.log_dir.glob("*.log")}
    assert {name: wrong_lines(text) for name, text in logs.items() if wrong_lines(text)} == {}
    printed = broker.output()
    assert [line for line in printed.split("\n") if not line.isprintable()] == []
    assert [line for line in printed.split("\n") if line.startswith(FORGED[:30])] == []
    quoting = [line for text in logs.values() for line in text.split("\n") if MARK in line]
    assert len(quoting) >= 20
    proved(
        f"log injection: {answered} requests answered, {len(quoting)} log lines quote a peer, "
        f"the longest has {max(map(len, quoting))} characters"
    )
