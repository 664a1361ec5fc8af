"""What is counted of transactions, over kills and a takeover, beside the producer's own list.

Real processes; what waits is asked as a console asks it (28913).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from remoting.request_code import RequestCode
from tests.support.broker_group import ASYNC_MASTER, SLAVE, SYNC_MASTER, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

TOPIC, GROUP = "Orders", "producers"
COMMIT, ROLLBACK = 8, 12


class Producer:
    """Its own list of what it did."""

    def __init__(self) -> None:
        self.open: list[tuple[int, int]] = []
        self.did: Counter[int] = Counter()
        self._sent = 0

    def send(self, client: FrameClient, count: int) -> None:
        for _ in range(count):
            self._sent += 1
            opaque = client.post(
                RequestCode.SEND_MESSAGE_V2,
                {
                    "a": GROUP,
                    "b": TOPIC,
                    "c": "TBW102",
                    "d": 4,
                    "e": 0,
                    "f": 4,
                    "g": int(time.time() * 1000),
                    "h": 0,
                    "i": f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01{self._sent:032X}",
                    "j": 0,
                    "k": "false",
                    "l": 16,
                    "m": "false",
                },
                b"half",
            )
            sent = client.take_send(opaque)
            assert sent.code == 0, sent
            self.open.append((sent.phy_offset, sent.queue_offset))

    def end(self, client: FrameClient, decision: int, count: int) -> None:
        """The oldest ones."""
        for _ in range(count):
            phy_offset, queue_offset = self.open.pop(0)
            fields = {
                "producerGroup": GROUP,
                "tranStateTableOffset": queue_offset,
                "commitLogOffset": phy_offset,
                "commitOrRollback": decision,
                "fromTransactionCheck": "false",
                "msgId": "U",
            }

            def is_ended(fields: dict[str, object] = fields) -> bool:
                return client.call(RequestCode.END_TRANSACTION, fields).code == 0

            wait_until(is_ended, timeout_s=20)  # 2: not read yet which have ended.
            self.did[decision] += 1


def told(broker: OurBroker) -> tuple[float | None, float, float]:
    """Halves that wait (None: not told yet), commits, rollbacks."""
    with broker.client() as client:
        names = "rocketmq_transaction_waiting,rocketmq_half,rocketmq_commit,rocketmq_rollback"
        answer = client.call(RequestCode.GET_METRICS, {"names": names})
    assert answer.code == 0, answer.remark
    metrics = json.loads(answer.body)["metrics"]

    def total(name: str) -> float | None:
        series = metrics.get(name)
        return None if series is None else sum(value for _, value in series)

    waiting = total("rocketmq_half_messages")
    by_group = metrics.get("rocketmq_transaction_waiting_halves", [])
    assert {labels["producer_group"] for labels, _ in by_group} <= {GROUP}
    assert waiting is None or sum(value for _, value in by_group) in (0, waiting)
    ends = (f"rocketmq_{end}_messages_total" for end in ("commit", "rollback"))
    commits, rollbacks = (total(name) or 0 for name in ends)
    return waiting, commits, rollbacks


def check(broker: OurBroker, producer: Producer, since: Counter[int]) -> None:
    """since: what the broker has not counted, of the life before."""
    ended = producer.did - since
    expected = float(len(producer.open)), float(ended[COMMIT]), float(ended[ROLLBACK])
    seen: list[object] = []

    def is_told() -> bool:
        seen[:] = [told(broker)]
        return seen == [expected]

    try:
        wait_until(is_told, timeout_s=20)
    except AssertionError as error:
        error.add_note(f"{seen}, and the producer knows {expected}")
        raise


def test_counts_over_kills_and_a_takeover(tmp_path: Path) -> None:
    producer, nothing = Producer(), Counter[int]()
    with Group(tmp_path).running() as group:
        master = group.start(group.first, SYNC_MASTER)
        slave = group.start(group.second, SLAVE)
        with master.client() as client:
            wait_until(lambda: client.send(TOPIC, 0, b"first").code == 0, timeout_s=30)
            producer.send(client, 20)
            producer.end(client, COMMIT, 7)
            producer.end(client, ROLLBACK, 2)
        check(master, producer, nothing)
        assert told(slave) == (None, 0, 0), "a slave serves no transactions"

        master.restart_by_kill("remoting")
        with master.client() as client:
            producer.end(client, COMMIT, 2)
            producer.send(client, 1)
        check(master, producer, nothing)

        master.crash()
        before = producer.did.copy()
        master = group.start(group.first, SYNC_MASTER)
        check(master, producer, before)
        with master.client() as client:
            wait_until(lambda: client.send(TOPIC, 0, b"linked").code == 0, timeout_s=30)
            producer.send(client, 2)
            producer.end(client, ROLLBACK, 1)

        master.crash()
        slave.terminate()
        before = producer.did.copy()
        promoted = group.start(group.second, ASYNC_MASTER)
        check(promoted, producer, before)
        with promoted.client() as client:
            producer.end(client, COMMIT, len(producer.open))
        check(promoted, producer, before)
