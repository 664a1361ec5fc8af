"""PopLoad: messages that are popped: two of three are acknowledged, the third has to come again.

A thread with one connection, which sends, pops and acknowledges. Its truth is its own: a message
that was stored has to be acknowledged in the end; one whose acknowledgement was answered in good
time must not come again.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final

from remoting.headers.extra_info_util import ExtraInfo, build_extra_info
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tools.chaos.ack_log import SEND_OK, STORED
from tools.chaos.frame_client import FrameClient, send_request, sent_of
from tools.chaos.mixed_load import LoadThread
from tools.chaos.workload import QUEUES, MayBeLost, Where
from tools.message_decoder import MessageExt, decode_messages

TOPIC: Final = "ChaosPops"
_GROUP: Final = "mqchaos-pops"
_INVISIBLE_MS: Final = 4_000
_IN_TIME_S: Final = 2.0
"""An acknowledgement that is answered later than this after its pop may come too late."""
_AT_A_TIME: Final = 16


@dataclass(slots=True)
class _Message:
    """What is known of one."""

    code: int
    answered_s: float
    pops: int = 0
    is_acked: bool = False
    is_in_doubt: bool = False
    """An acknowledgement was sent and no answer came: it may be stored."""
    acked_s: float | None = None
    """When its acknowledgement was answered, if that was in time."""
    excused: int = 0
    """Pops from when an acknowledgement could be lost: the check point of each may give the message
    out once more, whatever was acknowledged meanwhile."""


class PopLoad(LoadThread):
    """See the module."""

    def __init__(
        self,
        where: Where,
        period_s: float,
        broker_name: str,
        *,
        may_be_lost: MayBeLost,
        keeps_acks: bool,
        topic: str = TOPIC,
        invisible_ms: int = _INVISIBLE_MS,
    ) -> None:
        """keeps_acks: no fault of the run may take an acknowledgement. topic: its own.
        invisible_ms: of each pop."""
        super().__init__(where, period_s)
        self._topic = topic
        self._pop = {**_POP, "topic": topic, "invisibleTime": invisible_ms}
        self._broker_name = broker_name
        self._may_be_lost = may_be_lost
        self._kept_since_s = -math.inf if keeps_acks else math.inf
        """Acknowledgements that are answered from then on are kept."""
        self._again: list[str] = []
        """What has come again, although its acknowledgement was to be kept."""
        self._messages: dict[int, _Message] = {}
        self._count = 0
        self._sends = True
        self._came_s = time.monotonic()
        """When a message came last."""

    def drain(self) -> None:
        """Send no more, acknowledge whatever comes."""
        self._sends = False

    def keep_acks(self) -> None:
        """From now on no fault takes an acknowledgement."""
        self._kept_since_s = time.monotonic()

    def quiet_s(self) -> float:
        """For how long nothing has come."""
        return time.monotonic() - self._came_s

    def missing(self, *, only_ok: bool) -> list[int]:
        """Messages that were stored and did not come to their acknowledgement. only_ok: of those
        answered SEND_OK."""
        wanted = (SEND_OK,) if only_ok else STORED
        return [
            number
            for number, message in list(self._messages.items())
            if message.code in wanted
            and not (message.is_acked or message.is_in_doubt)
            and not self._may_be_lost(message.answered_s, message.code)
        ]

    def judge(self, *, only_ok: bool, acks_kept: bool = True) -> list[str]:
        """After the stop: what was violated. acks_kept: nothing unforeseen took any of them."""
        again = self._again if acks_kept else []
        missing = (
            f"popped message {number}: it was not acknowledged and never came again"
            for number in self.missing(only_ok=only_ok)
        )
        return [*self.violations, *again, *missing]

    def step(self, client: FrameClient) -> bool:
        if self._sends:
            self._send(client)
        popped_s = time.monotonic()
        answer = client.call(RequestCode.POP_MESSAGE, self._pop)
        if answer.code != SEND_OK:
            return False
        starts = dict(_places(answer.ext_fields["startOffsetInfo"]))
        places = [
            place
            for place, offsets in _places(answer.ext_fields["msgOffsetInfo"])
            for _offset in offsets.split(",")
        ]
        for place, message in zip(places, decode_messages(answer.body), strict=True):
            known = self._note(message, popped_s)
            if known is not None and not self._is_left_out(message, known):
                info = self._info_of(answer, place[0], int(starts[place]))
                self._acknowledge(client, message, info, known, popped_s)
        return True

    def _send(self, client: FrameClient) -> None:
        number, self._count = self._count, self._count + 1
        request = send_request(self._topic, number % QUEUES, str(number).encode())
        client.post(request)
        code = sent_of(client.take(request.opaque)).code
        if number not in self._messages:
            self._messages[number] = _Message(code, time.monotonic())

    def _note(self, message: MessageExt, popped_s: float) -> _Message | None:
        """A message has come, of a pop at popped_s; None: nobody sent it."""
        self._came_s = time.monotonic()
        number = int(message.body)
        if not 0 <= number < self._count:
            self.violations.append(f"popped: nobody sent {message.body[:24]!r}")
            return None
        # One whose send was not answered may be stored.
        known = self._messages.setdefault(number, _Message(-1, time.monotonic()))
        known.pops += 1
        if popped_s < self._kept_since_s:
            known.excused += 1
        elif known.acked_s is not None and self._kept_since_s <= known.acked_s < popped_s:
            self._came_again(number, known)
        return known

    def _is_left_out(self, message: MessageExt, known: _Message) -> bool:
        """Whether it is one of those that are acknowledged only when they have come again."""
        return self._sends and int(message.body) % 3 == 2 and known.pops == 1

    def _info_of(self, answer: RemotingCommand, flag: str, start: int) -> ExtraInfo:
        """What the handle of a message of this answer says. flag: whether it is of a retry topic.
        start: of its check point."""
        fields = answer.ext_fields
        return ExtraInfo(
            start,
            int(fields["popTime"]),
            int(fields["invisibleTime"]),
            int(fields["reviveQid"]),
            flag,
            self._broker_name,
        )

    def _acknowledge(
        self,
        client: FrameClient,
        message: MessageExt,
        info: ExtraInfo,
        known: _Message,
        popped_s: float,
    ) -> None:
        request = {
            "consumerGroup": _GROUP,
            "topic": info.real_topic(self._topic, _GROUP),
            "queueId": message.queue_id,
            "extraInfo": build_extra_info(info, message.queue_id, message.queue_offset),
            "offset": message.queue_offset,
        }
        was_in_doubt, known.is_in_doubt = known.is_in_doubt, True
        answer = client.call(RequestCode.ACK_MESSAGE, request)
        known.is_in_doubt = was_in_doubt
        if answer.code != SEND_OK:
            return
        known.is_acked = True
        now_s = time.monotonic()
        if now_s - popped_s < _IN_TIME_S:
            known.acked_s = self._first_kept(known.acked_s, now_s)

    def _came_again(self, number: int, known: _Message) -> None:
        if known.excused:
            known.excused -= 1
        else:
            self._again.append(f"popped message {number} came again, and it was acknowledged")

    def _first_kept(self, before_s: float | None, now_s: float) -> float:
        """When the message was first acknowledged for good."""
        is_kept = before_s is not None and before_s >= self._kept_since_s
        return before_s if is_kept and before_s is not None else now_s


def _places(text: str) -> list[tuple[tuple[str, str], str]]:
    """Of an answer's list: (retry flag, queue id), and what is said of it."""
    items = (item.split(" ") for item in text.split(";"))
    return [((flag, queue_id), rest) for flag, queue_id, rest in items]


_POP: Final = {
    "consumerGroup": _GROUP,
    "queueId": -1,
    "maxMsgNums": _AT_A_TIME,
    "pollTime": 0,
    "bornTime": 0,
    "initMode": 0,
    "expType": "TAG",
    "exp": "*",
    "order": "false",
}
