"""Mixed load: transactions, topics that come and go, clients that come and go. For the soak.

Each is a thread with one connection that goes on whatever is broken, counts what it did, and says
afterwards what was violated. Their truth is their own: nothing of it was asked of a broker.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from typing import Final

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tools.chaos.ack_log import SEND_OK, STORED
from tools.chaos.frame_client import FrameClient, send_request
from tools.chaos.workload import QUEUES, MayBeLost, Where

_TIMEOUT_S: Final = 8.0
_PAUSE_S: Final = 0.05


class LoadThread(ABC):
    """A thread that connects again and again until it is stopped."""

    def __init__(self, where: Where, period_s: float) -> None:
        """period_s: between two steps."""
        self._where = where
        self._period_s = period_s
        self._end = threading.Event()
        self.done = 0
        """Steps that succeeded."""
        self.broken = 0
        """Connections that ended."""
        self.violations: list[str] = []
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End. A thread that hangs is a violation: an answer never came."""
        self._end.set()
        self._thread.join(4 * _TIMEOUT_S)
        if self._thread.is_alive():
            self.violations.append(f"{self._thread.name} hangs")

    def text(self) -> str:
        """A few words about what it did."""
        return f"{self._thread.name} {self.done:,} ({self.broken:,} connections broke)"

    def _run(self) -> None:
        try:
            self._go_on()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            # A load that has ended would find nothing any more.
            self.violations.append(f"{self._thread.name} ended: {type(error).__name__}: {error}")

    def _go_on(self) -> None:
        while not self._end.is_set():
            try:
                with FrameClient(self._where(), _TIMEOUT_S) as client:
                    self.connected(client)
                    # A master that is replaced may go on, and keep its connections.
                    while not self._end.wait(self._period_s) and self._where() == client.peer:
                        self.done += self.step(client)
            except OSError:
                self.broken += 1
                self._end.wait(_PAUSE_S)

    def connected(self, client: FrameClient) -> None:  # noqa: B027 - most have nothing to do
        """First thing on a connection. Raises OSError."""

    @abstractmethod
    def step(self, client: FrameClient) -> bool:
        """The next thing; whether it was answered as wished. Raises OSError."""


# -- transactions ----------------------------------------------------------------------------------

TX_TOPIC: Final = "ChaosTransactions"
_PREPARED: Final = 4
_COMMIT, _ROLLBACK = 8, 12
_PULL_OFFSET_MOVED: Final = 21
_BEATS: Final = 50
"""Steps between two heartbeats."""
_ROUND, _REPEATED, _TURNED = 15, 6, 7
"""Of so many numbers one is committed twice, and one is committed after its rollback."""
_SETTLED_S: Final = 10.0
"""So long after its end nothing about a half is in doubt any more, also on a slave."""


class Transactions(LoadThread):
    """Halves: every third is committed, every third rolled back, the rest decided when asked (39).
    Some that have ended are committed once more.

    What was committed has to come, once; what was rolled back must never come.
    """

    def __init__(
        self,
        where: Where,
        period_s: float,
        may_be_lost: MayBeLost = lambda _answered_s, _code: False,
        *,
        topic: str = TX_TOPIC,
    ) -> None:
        """may_be_lost: of a half. topic: its own; its producers' group has the same name."""
        super().__init__(where, period_s)
        self._topic = topic
        self._may_be_lost = may_be_lost
        self._count = 0
        self._due: dict[int, tuple[float, int]] = {}
        """Numbers that have to come: their halves were acknowledged, and they are to be committed.
        When they were answered, and how."""
        self._ended: dict[int, tuple[float, float]] = {}
        """From the half to the answered end, in monotonic seconds."""
        self._places: dict[int, set[tuple[int, int]]] = {}
        """Where each number that came is: queue id and queue offset."""
        self._at = dict.fromkeys(range(QUEUES), 0)
        self._decides = True
        self._disturbed: list[float] = []
        self._begins_anew = threading.Event()

    def disturb(self) -> None:
        """The master dies, or loses something: what ends now may be asked about again, and ended
        again."""
        self._disturbed.append(time.monotonic())

    def read_again(self) -> None:
        """The queues may go on otherwise from some place on: read them from the beginning."""
        self._begins_anew.set()

    def decide_only(self) -> None:
        """Send no more halves, answer checks, and read."""
        self._decides = False

    def missing(self, *, only_ok: bool = False) -> list[int]:
        """What was committed and did not come. only_ok: of halves that were answered SEND_OK."""
        return [
            number
            for number, (answered_s, code) in sorted(self._due.items())
            if number not in self._places
            and (code == SEND_OK or not only_ok)
            and not self._may_be_lost(answered_s, code)
        ]

    @property
    def has_all(self) -> bool:
        """Whether everything that was committed came."""
        return not self.missing()

    def judge(self, *, only_ok: bool = False) -> list[str]:
        """After the stop: what was violated."""
        lost = [f"transaction {number} never came" for number in self.missing(only_ok=only_ok)]
        twice = [
            f"transaction {number} was committed once and came {len(places)} times"
            for number, places in sorted(self._places.items())
            if len(places) > 1 and self._is_quiet(number)
        ]
        wrong = [
            f"transaction {number} came and was rolled back"
            for number in sorted(self._places)
            if _decision(number) == _ROLLBACK
            and (number % _ROUND != _TURNED or self._is_quiet(number))
        ]
        return self.violations + lost + twice + wrong

    def _is_quiet(self, number: int) -> bool:
        """Whether nothing disturbed the master from its half to some time after its end."""
        if number not in self._ended:
            return False
        begun_s, ended_s = self._ended[number]
        return not any(begun_s <= at_s <= ended_s + _SETTLED_S for at_s in self._disturbed)

    def connected(self, client: FrameClient) -> None:
        """Known as a producer, so that it is asked."""
        body = {
            "clientID": f"mqchaos-{self._topic}",
            "producerDataSet": [{"groupName": self._topic}],
            "consumerDataSet": [],
        }
        client.call(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())

    def step(self, client: FrameClient) -> bool:
        if self._count % _BEATS == 0:
            self.connected(client)
        self._answer_checks(client)
        self._read(client)
        if not self._decides:
            # An answer to anything brings the checks that were sent before it.
            self.connected(client)
            return False
        number, self._count = self._count, self._count + 1
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{self._topic}\x02UNIQ_KEY\x01tx-{number}\x02"
        body = str(number).encode()
        request = send_request(self._topic, number % QUEUES, body, properties, _PREPARED)
        client.post(request)
        answer = client.take(request.opaque)
        if answer.code not in STORED:
            return False
        begun_s = time.monotonic()
        if _decision(number) == _COMMIT:
            self._due[number] = begun_s, answer.code
        if number % 3 == 2:
            return True  # It is asked for.
        fields = answer.ext_fields
        half, phy_offset = fields["queueOffset"], str(int(fields["msgId"][-16:], 16))
        if self._end_it(client, number, half, phy_offset).code != SEND_OK:
            return False
        self._ended[number] = begun_s, time.monotonic()
        if number % _ROUND in (_REPEATED, _TURNED):
            # It has ended: whatever is answered, nothing may come of this.
            self._end_it(client, number, half, phy_offset, decision=_COMMIT)
        return True

    def _end_it(
        self,
        client: FrameClient,
        number: int,
        half: str,
        phy_offset: str,
        *,
        checked: bool = False,
        decision: int | None = None,
    ) -> RemotingCommand:
        fields = {
            "producerGroup": self._topic,
            "tranStateTableOffset": half,
            "commitLogOffset": phy_offset,
            "commitOrRollback": _decision(number) if decision is None else decision,
            "fromTransactionCheck": "true" if checked else "false",
            "msgId": f"tx-{number}",
            "transactionId": f"tx-{number}",
        }
        return client.call(RequestCode.END_TRANSACTION, fields)

    def _answer_checks(self, client: FrameClient) -> None:
        asked, client.requests = client.requests, []
        for request in asked:
            if request.code != RequestCode.CHECK_TRANSACTION_STATE:
                continue
            fields = request.ext_fields
            number = int(fields.get("transactionId", "tx-0").removeprefix("tx-"))
            half, phy_offset = fields["tranStateTableOffset"], fields["commitLogOffset"]
            self._end_it(client, number, half, phy_offset, checked=True)

    def _read(self, client: FrameClient) -> None:
        if self._begins_anew.is_set():
            self._begins_anew.clear()
            self._places.clear()
            self._at = dict.fromkeys(self._at, 0)
        for queue_id, at in self._at.items():
            pulled = client.pull(self._topic, queue_id, at)
            if pulled.code not in (SEND_OK, _PULL_OFFSET_MOVED):
                continue
            self._at[queue_id] = pulled.next_offset
            for message in pulled.messages:
                place = queue_id, message.queue_offset
                self._places.setdefault(int(message.body), set()).add(place)


def _decision(number: int) -> int:
    return _ROLLBACK if number % 3 == 1 else _COMMIT


# -- topics ----------------------------------------------------------------------------------------

_NAMES: Final = 5
_MESSAGES: Final = 4


class TopicChurn(LoadThread):
    """Creates a topic, sends, reads and deletes it, under a few names in turn.

    A topic that was deleted and created again must not have the messages of its former life.
    """

    def __init__(self, where: Where, period_s: float) -> None:
        super().__init__(where, period_s)
        self._cycle = 0
        self._deleted = dict.fromkeys(range(_NAMES), True)
        """Whether the name's last life ended in an answered deletion."""

    def step(self, client: FrameClient) -> bool:
        cycle, self._cycle = self._cycle, self._cycle + 1
        name = cycle % _NAMES
        topic, was_deleted = f"ChaosChurn{name}", self._deleted[name]
        self._deleted[name] = False
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1}
        fields |= {"writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        created = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        if created.code != SEND_OK:
            return False
        requests = [send_request(topic, 0, b"%d" % cycle) for _ in range(_MESSAGES)]
        client.post(*requests)
        codes = [client.take(request.opaque).code for request in requests]
        if was_deleted:
            self._look(client, topic, cycle)
        deleted = client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == SEND_OK
        self._deleted[name] = deleted
        return deleted and all(code in STORED for code in codes)

    def _look(self, client: FrameClient, topic: str, cycle: int) -> None:
        for message in client.pull(topic, 0, 0).messages:
            if message.body != b"%d" % cycle:
                self.violations.append(
                    f"{topic}, created in cycle {cycle}, has {message.body!r} of a former life"
                )


# -- clients ---------------------------------------------------------------------------------------


class Reconnects(LoadThread):
    """Clients that connect, join a group, ask, and are gone, with an orderly end or without."""

    def step(self, client: FrameClient) -> bool:
        number = self.done
        with FrameClient(self._where(), _TIMEOUT_S) as other:
            data = {"groupName": f"mqchaos-reconnects-{number % 7}"}
            beat = {
                "clientID": f"mqchaos-{number}",
                "producerDataSet": [data],
                "consumerDataSet": [],
            }
            other.call(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
            other.max_offset(TX_TOPIC, 0)
            if number % 2:
                fields = {"clientID": beat["clientID"], "producerGroup": data["groupName"]}
                other.call(RequestCode.UNREGISTER_CLIENT, fields)
        return True
