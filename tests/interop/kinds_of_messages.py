"""Messages of every kind, left at one broker and counted at the next: normal, delayed, timers,
halves of transactions, popped, retried, dead, priority, lite.

Plain frames, since no client of one release sends all of them. `leave` has a broker take so many of
each; `found` is what the next one gives of them: what waits is waited for, transactions are
committed. Used by test_migrated_counts.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from remoting.request_code import RequestCode as Code
from store.message import Message
from tests.interop.processes import PeerError, wait_until
from tests.support.our_broker import FrameClient, Sent, drain, pull_fields
from tests.support.pop_client import PopClient

KINDS_4_9 = ("normal", "delayed", "half", "retried", "dead")
KINDS_5_3 = (*KINDS_4_9, "timer", "popped")
KINDS_5_5 = (*KINDS_5_3, "priority", "lite")
SETTINGS = {
    # Nobody checks halves meanwhile, which would store them again.
    "transactionTimeOut": "3600000",
    "timerWheelEnable": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    # A busy machine is no reason to refuse.
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}
QUEUES = 4
LITE_TOPICS = 5
GROUP = "GMigrated"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
_PREPARED, _COMMIT = 4, 8
_TYPES = {"priority": "PRIORITY", "lite": "LITE"}


def topic_of(kind: str) -> str:
    """Where messages of a kind are sent to."""
    return f"Migrated-{kind}"


def place_of(kind: str) -> str:
    """Where consumers find them."""
    return {
        "retried": f"%RETRY%{GROUP}",
        "dead": f"%DLQ%{GROUP}",
        "popped": f"%RETRY%{GROUP}_{topic_of('popped')}",
    }.get(kind, topic_of(kind))


@dataclass
class Left:
    """What brokers took, by kind: bodies, each once."""

    kinds: Sequence[str]
    wait_s: int
    """How long what waits does: delayed, timers, popped, retried."""
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    """Of the popped ones."""

    def settings(self) -> dict[str, str]:
        """Of every broker."""
        return SETTINGS | {"messageDelayLevel": f"1s {self.wait_s}s"}

    def expected(self, kind: str) -> Counter[bytes]:
        """What the next broker has to give."""
        return Counter(body for body in self.bodies[kind] if body not in self.acknowledged)


def make_topics(client: FrameClient, kinds: Sequence[str]) -> None:
    """On the first broker; the next ones have them from it."""
    for kind in kinds:
        fields = {
            "topic": topic_of(kind),
            "defaultTopic": "TBW102",
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        if kind in _TYPES:
            fields["attributes"] = f"+message.type={_TYPES[kind]}"
        answer = client.call(Code.UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == 0, (kind, answer.remark)
    body = b'{"groupName":"%s","retryMaxTimes":16,"retryQueueNums":1}' % GROUP.encode()
    answer = client.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == 0, answer.remark


def leave(client: FrameClient, broker_name: str, left: Left, each: int) -> None:
    """Have this broker take so many more of each kind."""
    for kind in left.kinds:
        known = left.bodies.setdefault(kind, [])
        new = [b"%s %d" % (kind.encode(), n) for n in range(len(known), len(known) + each)]
        known += new
        for number, body in enumerate(new):
            sent = _send(client, left, kind, number, body)
            if kind in ("retried", "dead"):
                _send_back(client, kind, sent)
    if "popped" in left.kinds:
        _pop(PopClient(client, GROUP, broker_name), left, left.bodies["popped"][-each:])


def _send(client: FrameClient, left: Left, kind: str, number: int, body: bytes) -> Sent:
    key = body.decode().replace(" ", "-")
    properties = {"KEYS": key, "UNIQ_KEY": f"id-{key}"}
    match kind:
        case "delayed":
            properties["DELAY"] = "2"
        case "timer":
            properties["TIMER_DELIVER_MS"] = str(int((time.time() + left.wait_s) * 1000))
        case "half":
            properties |= {"TRAN_MSG": "true", "PGROUP": GROUP}
        case "priority":
            properties["_SYS_MSG_PRIORITY_"] = str(number % QUEUES)
        case "lite":
            properties["__LITE_TOPIC"] = f"l{number % LITE_TOPICS}"
    fields = {
        "a": GROUP,
        "b": topic_of(kind),
        "c": "TBW102",
        "d": QUEUES,
        "e": number % QUEUES,
        "f": _PREPARED if kind == "half" else 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        "j": 0,
        "k": "false",
        "l": 16,
        "m": "false",
    }
    sent = client.take_send(client.post(310, fields, body))
    assert sent.code == 0, (kind, sent)
    return sent


def _send_back(client: FrameClient, kind: str, sent: Sent) -> None:
    fields = {
        "offset": sent.phy_offset,
        "group": GROUP,
        "delayLevel": 2 if kind == "retried" else -1,
        "originMsgId": "x",
        "originTopic": topic_of(kind),
        "unitMode": "false",
        "maxReconsumeTimes": 16,
    }
    answer = client.call(Code.CONSUMER_SEND_MSG_BACK, fields)
    assert answer.code == 0, (kind, answer.remark)


def _pop(group: PopClient, left: Left, new: Sequence[bytes]) -> None:
    """All that are new; every third is acknowledged, and what came before, which is again there."""
    acknowledged, out = set(new[::3]), set(new)

    def are_out() -> bool:
        for popped in group.pop(topic_of("popped"), invisibleTime=left.wait_s * 1000).messages:
            body = popped.message.body
            if body in acknowledged or body not in new:
                assert group.ack(popped).code == 0
            out.discard(body)
        return not out

    wait_until(are_out, f"{len(new)} popped", 120, poll_s=0)
    left.acknowledged |= acknowledged


def waiting(client: FrameClient, kinds: Sequence[str]) -> dict[str, int]:
    """What a broker that gives nothing back yet has of each kind: ends of queues, by a name of the
    place."""
    ends: dict[str, tuple[str, Sequence[int]]] = {
        "delayed and retried": ("SCHEDULE_TOPIC_XXXX", (1,)),
        "half": (HALF_TOPIC, (0,)),
    }
    if "timer" in kinds:
        ends["timer"] = ("rmq_sys_wheel_timer", (0,))
    for kind in kinds:
        if kind in ("normal", "priority", "popped"):
            ends[kind] = (topic_of(kind), range(QUEUES))
        if kind == "dead":
            ends[kind] = (place_of(kind), (0,))
    counts = {
        name: sum(client.offset(Code.GET_MAX_OFFSET, topic, queue) for queue in queues)
        for name, (topic, queues) in ends.items()
    }
    if "lite" in kinds:
        counts["lite"] = len(list(_lite_messages(client)))
    return counts


def found(
    client: FrameClient, left: Left, ended: set[bytes], timeout_s: float = 180
) -> dict[str, Counter[bytes]]:
    """What this broker gives of each kind, once it is what it has to be. ended: halves that were
    committed before; those of now are added."""
    counts: dict[str, Counter[bytes]] = {}
    for kind in sorted(left.kinds, key="half".__eq__):
        if kind == "half":
            # The last: a thread of 5.5 spins once it has an end of a transaction to store.
            _commit(client, ended)
        try:
            wait_until(_is_there(client, left, kind, counts), kind, timeout_s, poll_s=0.5)
        except PeerError:
            lacking = left.expected(kind) - counts[kind]
            more = counts[kind] - left.expected(kind)
            raise PeerError(
                f"{kind}: {lacking.total()} are lacking, as {list(lacking)[:3]}; {more.total()} "
                f"too many, as {list(more)[:3]}"
            ) from None
    # All of them once more: one that comes twice may have come later.
    return {kind: bodies_of(client, kind) for kind in left.kinds}


def _is_there(
    client: FrameClient, left: Left, kind: str, counts: dict[str, Counter[bytes]]
) -> Callable[[], bool]:
    def is_there() -> bool:
        counts[kind] = bodies_of(client, kind)
        return not left.expected(kind) - counts[kind]

    return is_there


def bodies_of(client: FrameClient, kind: str) -> Counter[bytes]:
    """What consumers would find now."""
    if kind == "lite":
        return Counter(message.body for message in _lite_messages(client))
    queues = 1 if kind in ("retried", "dead", "popped") else QUEUES
    return Counter(
        message.body
        for queue in range(queues)
        for message in drain(client, place_of(kind), queue)
        if kind != "priority" or int(message.find_property("_SYS_MSG_PRIORITY_") or -1) == queue
    )


def _lite_messages(client: FrameClient) -> Iterator[Message]:
    """By the light queue of each lite topic."""
    for number in range(LITE_TOPICS):
        light = f"%LMQ%${topic_of('lite')}$l{number}"
        at = 0
        while True:
            fields = {**pull_fields(topic_of("lite"), 0, at), "liteTopic": f"l{number}"}
            pulled = client.take_pull(client.post(11, fields))
            if not pulled.messages:
                break
            assert all(m.find_property("INNER_MULTI_DISPATCH") == light for m in pulled.messages)
            yield from pulled.messages
            at = pulled.next_offset


def _commit(client: FrameClient, ended: set[bytes]) -> None:
    """Every half that is still open, where this broker has it."""
    for message in drain(client, HALF_TOPIC, 0):
        if message.body in ended:
            continue
        fields = {
            "producerGroup": GROUP,
            "tranStateTableOffset": message.queue_offset,
            "commitLogOffset": message.phy_offset,
            "commitOrRollback": _COMMIT,
            "fromTransactionCheck": "false",
            "msgId": message.find_property("UNIQ_KEY"),
            "transactionId": message.find_property("UNIQ_KEY"),
        }
        answer = client.call(Code.END_TRANSACTION, fields)
        assert answer.code == 0, answer.remark
        ended.add(message.body)
