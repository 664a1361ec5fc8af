"""Dead letters of a broker of ours: sent back by a consumer, listed, resent, consumed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from remoting.headers.consumer import UpdateConsumerOffsetRequestHeader
from remoting.headers.send_message import ConsumerSendMsgBackRequestHeader
from remoting.request_code import RequestCode
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tools.admin_client import AdminClient, NameServers
from tools.command_line import wall_clock_ms
from tools.dead_letter_resend import ResendOrder, ResendStep, resend
from tools.dead_letters import DeadLetter, count_dead_letters, find, newest, scan
from tools.message_decoder import MessageExt
from tools.message_finder import find_by_offset_id, find_newest
from tools.message_sender import MessageSender, OutgoingMessage
from tools.resend_audit import ResendAudit

GROUP = "g"
TOPIC = "orders"
BODIES = [b"a" * 100, b"b" * 300_000]


class Operator:
    """A client of a running broker."""

    def __init__(self, admin: AdminClient, broker: OurBroker, audit: Path) -> None:
        self.admin = admin
        self.address = f"127.0.0.1:{broker.ports['main']}"
        self.audit = audit

    def send(self) -> None:
        """Two messages of the topic."""
        sender = MessageSender(self.admin, TOPIC)
        for number, body in enumerate(BODIES):
            properties = {"KEYS": f"k{number}", "TAGS": "t", "own": "größer"}
            sender.send_message(OutgoingMessage(body=body, properties=properties), sender.queues[0])

    def give_up(self) -> None:
        """The group consumes them, and sends each back as one that will never be consumed."""
        for message in self.messages(len(BODIES)):
            offset = UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP,
                topic=TOPIC,
                queue_id=message.queue_id,
                commit_offset=message.queue_offset + 1,
            )
            self.admin.call(self.address, RequestCode.UPDATE_CONSUMER_OFFSET, offset)
            back = ConsumerSendMsgBackRequestHeader(
                group=GROUP, offset=message.phy_offset, delay_level=-1
            )
            self.admin.call(self.address, RequestCode.CONSUMER_SEND_MSG_BACK, back)
        wait_until(lambda: count_dead_letters(self.admin, GROUP).count == len(BODIES))

    def messages(self, count: int) -> list[MessageExt]:
        """All of the topic, oldest first, once there are so many."""
        found: list[MessageExt] = []

        def are_there() -> bool:
            newest_first = find_newest(self.admin, TOPIC, 99, max_body=1 << 20)
            assert newest_first.problems == []
            found[:] = newest_first.messages[::-1]
            return len(found) >= count

        wait_until(are_there)
        assert len(found) == count
        return found

    def resend(self) -> Iterator[ResendStep]:
        """All."""
        order = ResendOrder(group=GROUP, who="alice", origin="here")
        with ResendAudit(self.audit) as audit:
            letters = scan(self.admin, GROUP)
            yield from resend(self.admin, letters, order, audit, wait=lambda _seconds: False)


def running(broker: OurBroker, audit: Path) -> Iterator[Operator]:
    servers = NameServers.parse(f"127.0.0.1:{broker.ports['namesrv']}")
    with AdminClient(servers, wall_clock_ms) as admin:
        yield Operator(admin, broker, audit)


def test_from_the_consumer_to_the_consumer(tmp_path: Path) -> None:
    """First without the slave that a synchronous master waits for: nothing counts, though it is
    stored. Then, after a restart as an asynchronous one, everything does, once."""
    audit = tmp_path / "audit.jsonl"
    with OurBroker(tmp_path / "broker", brokerRole="SYNC_MASTER") as broker:
        broker.start()
        for operator in running(broker, audit):
            operator.send()
            operator.give_up()
            _look(operator)
            steps = list(operator.resend())
            assert [step.result for step in steps] == ["SLAVE_NOT_AVAILABLE"] * 2
            operator.messages(4)  # stored all the same
        broker.terminate()
        broker.settings["brokerRole"] = "ASYNC_MASTER"
        broker.start()
        for operator in running(broker, audit):
            steps = list(operator.resend())
            assert [step.result for step in steps] == ["SEND_OK"] * 2
            _look_at_copies(operator, steps)
            assert [step.result for step in operator.resend()] == ["ALREADY_RESENT"] * 2
            operator.messages(6)
            assert count_dead_letters(operator.admin, GROUP).count == 2, "they stay where they are"
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [line["result"] for line in lines] == [
        *(["SENDING", "SLAVE_NOT_AVAILABLE"] * 2),
        *(["SENDING", "SEND_OK"] * 2),
    ]


def _look(operator: Operator) -> None:
    """List and search."""
    letters, problems = newest(operator.admin, GROUP, 10)
    assert problems == []
    sent = operator.messages(2)
    assert [letter.origin_topic for letter in letters] == [TOPIC] * 2
    assert [letter.message.msg_id for letter in letters] == [m.msg_id for m in sent[::-1]]
    assert [letter.origin_id for letter in letters] == [m.offset_msg_id for m in sent[::-1]]
    assert [letter.message.reconsume_times for letter in letters] == [1, 1]
    assert [letter.message.stored_body_size for letter in letters] == [300_000, 100]
    for wanted in (letters[0].letter_id, letters[0].message.msg_id):
        wait_until(partial(_finds_the_second, operator, wanted))  # the index follows the log


def _finds_the_second(operator: Operator, wanted: str) -> bool:
    (found,) = find(operator.admin, GROUP, [wanted])
    return isinstance(found, DeadLetter) and found.message.body == BODIES[1]


def _look_at_copies(operator: Operator, steps: list[ResendStep]) -> None:
    for number, step in enumerate(steps):
        assert step.new_msg_id is not None
        copy = find_by_offset_id(operator.admin, step.new_msg_id)
        assert (copy.topic, copy.body, copy.msg_id) == (TOPIC, BODIES[number], step.msg_id)
        assert copy.reconsume_times == 0
        own = {"KEYS": f"k{number}", "TAGS": "t", "own": "größer", "UNIQ_KEY": step.msg_id}
        assert copy.properties.items() >= own.items()
        assert not copy.properties.keys() & {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"}
