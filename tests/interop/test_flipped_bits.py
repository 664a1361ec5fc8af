"""Single bits that flip between a Java master and our slaves: RocketMQ's link has no checksum."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from remoting.request_code import RequestCode
from store.message_codec import record_head
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.interop.replication import Group, log_files, wait_caught_up
from tests.support.armed_relay import ArmedRelay

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SEED = 20_261_123
QUEUES = 4
TOPIC = "FlippedBits"
LEVELS = ("received", "validated")
HEAD = record_head(0)
FIELDS = (
    (4, "totalSize"),
    (8, "magic"),
    (12, "bodyCRC"),
    (16, "queueId"),
    (20, "flag"),
    (28, "queueOffset"),
    (36, "physicalOffset"),
    (40, "sysFlag"),
    (48, "bornTimestamp"),
    (56, "bornHost"),
    (64, "storeTimestamp"),
    (72, "storeHost"),
    (76, "reconsumeTimes"),
    (84, "preparedTransactionOffset"),
    (88, "bodySize"),
)
UNSEEN = {
    "received": {"bodyCRC", "body"},
    "validated": set[str](),
}
ALWAYS_UNSEEN = {
    *("flag", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp"),
    *("reconsumeTimes", "properties", "queueId"),
}
"""What docs/replication.md says cannot be seen; of times, ids and counts: the low bits."""


def field_of(log: bytes, offset: int) -> str:
    """Which field of which record the byte at `offset` belongs to."""
    at = 0
    while at + (size := int.from_bytes(log[at : at + 4], "big")) <= offset:
        at += size
    inside = offset - at
    for end, name in FIELDS:
        if inside < end:
            return name
    body_end = HEAD.size + HEAD.unpack_from(log, at)[14]
    topic_end = body_end + 1 + log[at + body_end]
    if inside < body_end:
        return "body"
    return "topic" if inside < topic_end else "properties"


@pytest.fixture
def group(tmp_path: Path, namesrv: harness.NameServer) -> Iterator[Group]:
    kinds = ("java-4.9", "ours", "ours")
    made = Group(tmp_path, namesrv.address, kinds, role="SYNC_MASTER", name="flipped")
    made.master.start()
    yield made
    made.end()


def send(master: harness.Broker, count: int) -> list[int]:
    """Messages that are sent one by one; their codes."""
    codes = []
    with master.client(timeout_s=30) as client:
        for number in range(count):
            body = f"message {number} ".encode() * 3
            codes.append(client.send(TOPIC, number % QUEUES, body, f"key-{number}").code)
    return codes


def wait_flips(relays: Iterable[ArmedRelay], count: int) -> None:
    """Until each has flipped so many bits."""
    wait_until(lambda: {len(relay.flipped) for relay in relays} == {count}, f"{count} flips")


def bounds(broker: harness.Broker) -> list[int]:
    """The max offset of every queue."""
    with broker.client() as client:
        return [
            int(
                client.call(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": n}).ext_fields[
                    "offset"
                ]
            )
            for n in range(QUEUES)
        ]


def test_few_flipped_bits_are_kept_and_no_queue_is_damaged(
    group: Group, proved: Callable[[str], None]
) -> None:
    """60 flips to each slave. Each is repaired, or in a field that nothing can be compared with."""
    target = ("127.0.0.1", group.master.port + 1)
    chance = random.Random(SEED)
    with ArmedRelay(target, SEED) as first, ArmedRelay(target, SEED + 1) as second:
        relays = (first, second)
        for slave, relay, level in zip(group.slaves, relays, LEVELS, strict=True):
            slave.configure(haMasterAddress=relay.address, haAckLevel=level)
            slave.start()
        send(group.master, 40)
        wait_caught_up(group)
        for expected in range(1, 61):
            for relay in relays:
                relay.arm()
            send(group.master, 1)
            wait_flips(relays, expected)
            wait_caught_up(group, 20)
            # The last record is compared with the master's on every new link: let it be a good one.
            send(group.master, chance.randrange(1, 4))
            wait_caught_up(group, 20)
        assert [len(relay.flipped) for relay in relays] == [60, 60]
        send(group.master, 20)
        end = wait_caught_up(group)
    logs = [log_files(member)[0].read_bytes()[:end] for member in group.members]
    for slave, log, level in zip(group.slaves, logs[1:], LEVELS, strict=True):
        kept = [at for at, pair in enumerate(zip(logs[0], log, strict=True)) if len(set(pair)) > 1]
        fields = Counter(field_of(logs[0], at) for at in kept)
        assert set(fields) <= ALWAYS_UNSEEN | UNSEEN[level], fields
        assert len(kept) < 40, fields
        assert bounds(slave) == bounds(group.master)
        proved(f"60 flips from a Java master, {level}: {len(kept)} kept, in {dict(fields)}")
