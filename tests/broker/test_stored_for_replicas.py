"""What a master stores, a slave on a checked link takes without a doubt: one rule for both.

Numbers of every size in every header that brings a message, also those that no real client sends:
what is answered SEND_OK must never be a reason for the slave to ask again or to stop judging.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ha.control_slots import HA_REFUSALS, REPLICA_COUNT
from ha.record_expectations import QueueEnd
from ha.record_validator import RecordValidators
from ha.refusals import RefusalReason
from remoting.remoting_command import SerializeType
from remoting.request_code import RequestCode as Code
from store.control_slots import MAX_PHY_OFFSET
from store.message_codec import decode_message_id
from tests.broker.hot_path_world import HotPathWorld, send_fields, send_request
from tests.broker.send.test_send_message_processor import batch_body
from tests.support.broker_group import SLAVE, SYNC_MASTER, Group, counters_of, log_of
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.our_broker import FrameClient

INT32 = (0, 1, -1, -5, 7, 0x1F, 0x10, 0x20, 1 << 20, 0x7FFF, 65_536, (1 << 31) - 1, -(1 << 31))
INT64 = (0, 1, -1, 1 << 31, 1_795_177_732_448, (1 << 63) - 1, -(1 << 63))
PROPERTIES = (
    "KEYS\x01k",
    "",
    "UNIQ_KEY\x01AC120001\x02TAGS\x01a",
    "DELAY\x013",
    "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01AC12000100002A9F18B4AAC2B7AF0001",
    "INNER_NUM\x013\x02UNIQ_KEY\x01AC1200",
    "WAIT\x01false",
)

odd_sends = st.fixed_dictionaries(
    {
        "queue_id": st.sampled_from([0, 1, 3]),
        "sys_flag": st.one_of(st.sampled_from(INT32), st.integers(-(1 << 31), (1 << 31) - 1)),
        "born_timestamp": st.one_of(st.sampled_from(INT64), st.integers(-(1 << 63), (1 << 63) - 1)),
        "flag": st.sampled_from(INT32),
        "reconsume_times": st.sampled_from(INT32),
        "properties": st.sampled_from(PROPERTIES),
    }
)


def at_start(_topic: str, _queue_id: int, phy_offset: int) -> QueueEnd:
    return QueueEnd(0, max(phy_offset, 0) // 91)


def test_what_the_send_routes_store_is_expected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """JSON and binary headers, short and long names, batches; IPv4 and IPv6 clients."""
    size = 1 << 23
    world = HotPathWorld(tmp_path, file_size=size)
    world.topic()
    clients = itertools.cycle((world.client(), world.client("2001:db8::7")))
    validators = RecordValidators(size, at_start, ManualClock(world.clock.now), check_crc=True)
    stored = [0]
    codes: set[int] = set()

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        sends=st.lists(odd_sends, min_size=1, max_size=40),
        serialize=st.sampled_from(SerializeType),
        code=st.sampled_from([Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE]),
    )
    def send(sends: list[dict[str, object]], serialize: SerializeType, code: int) -> None:
        client = next(clients)
        for fields in sends:
            body = b"body"
            if code == Code.SEND_BATCH_MESSAGE:
                fields, body = {**fields, "batch": "true"}, batch_body(*[(0, b"a", b"K\x01v")] * 3)
            client.send(send_request(body, code=code, serialize=serialize, **fields))
            world.turn()
        codes.update(answer.code for answer in client.answers())
        end = world.counters[MAX_PHY_OFFSET]
        view = world.source.view_of_file(0)
        assert view is not None
        link = validators.begin(stored[0], is_checked=True)
        assert link.check(view, end) is None
        assert link.position == end
        stored[0] = end

    send()
    assert 0 in codes
    assert stored[0] > 20_000
    assert [line for line in caplog.messages if "which is the master's" in line] == []


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path).running() as found:
        yield found


def _odd_fields(chance: random.Random, topic: str) -> dict[str, str]:
    return send_fields(
        topic=topic,
        queue_id=chance.randrange(4),
        sys_flag=chance.choice(INT32),
        born_timestamp=chance.choice(INT64),
        flag=chance.choice(INT32),
        reconsume_times=chance.choice(INT32),
        properties=chance.choice(PROPERTIES),
    )


def _send_one(client: FrameClient, chance: random.Random, topic: str) -> bool:
    """A send or a reply, and what may follow it: its end as a half, or that it is sent back."""
    fields = _odd_fields(chance, topic)
    code = chance.choice((Code.SEND_MESSAGE_V2, Code.SEND_REPLY_MESSAGE_V2))
    answer = client.call(code, fields, b"body")
    if answer.code != 0:
        return False
    _, phy_offset = decode_message_id(answer.ext_fields["msgId"])
    if "TRAN_MSG" in fields["i"]:
        end = {
            "producerGroup": "P",
            "tranStateTableOffset": answer.ext_fields["queueOffset"],
            "commitLogOffset": phy_offset,
            "commitOrRollback": chance.choice((8, 12)),
            "fromTransactionCheck": "false",
            "msgId": "AC12000100002A9F18B4AAC2B7AF0001",
            "transactionId": "AC12000100002A9F18B4AAC2B7AF0001",
        }
        return client.call(Code.END_TRANSACTION, end).code == 0
    back = {
        "offset": phy_offset,
        "group": "G",
        "delayLevel": chance.choice((-1, 0, 3)),
        "originMsgId": "x",
        "originTopic": topic,
        "unitMode": "false",
        "maxReconsumeTimes": chance.choice((0, 16)),
    }
    return client.call(Code.CONSUMER_SEND_MSG_BACK, back).code == 0


def test_odd_numbers_break_no_link(group: Group) -> None:
    """bornTimestamp 0, reconsumeTimes -5 and sysFlag 1 << 20 closed the link three times each, and
    the slave stopped judging those fields for an hour."""
    topic = "TopicTest"
    master = group.start(group.first, SYNC_MASTER, slaveTimeout=20_000)
    slave = group.start(group.second, SLAVE)
    with (
        counters_of(master) as counters,
        counters_of(slave) as slave_counters,
        master.client(timeout_s=30) as client,
    ):
        wait_until(lambda: counters[REPLICA_COUNT] == 1, 20)
        assert client.send(topic, 0, b"first").code == 0
        chance = random.Random(26)
        done = sum(_send_one(client, chance, topic) for _ in range(200))
        assert done > 30
        wait_until(lambda: slave_counters[MAX_PHY_OFFSET] == counters[MAX_PHY_OFFSET], 20)
        for reason in RefusalReason:
            if reason is not RefusalReason.NETWORK:
                assert slave_counters[HA_REFUSALS + reason] == 0, reason
    assert log_of(slave) == log_of(master)
    for text in ("which is the master's", "not judged"):
        assert text not in slave.log("ha")
