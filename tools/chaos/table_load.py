"""TableChanges: topics, consumer groups and modes of requests that are created and changed during a
load, and what of them a broker has to know afterwards: a slave that was started without its master,
or a master that was killed.

A thread with one connection to the master. Its truth is its own: what it asked for, and when that
was answered. Each value is another one than the last of its name, with numbers that no queue and no
default shows, so that a table that was made anew is not taken for one that was kept. Of the delay
offsets, which the master moves by itself, it keeps what the master said.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from tools.chaos.ack_log import SEND_OK
from tools.chaos.frame_client import FrameClient
from tools.chaos.mixed_load import LoadThread
from tools.chaos.workload import Where

_TIMEOUT_S: Final = 10.0
_NAMES: Final = 3
_QUEUES: Final = 16
_PERMS: Final = (2, 4, 6)
_TOPIC, _GROUP, _MODE = "topic", "consumer group", "mode of requests of"
_UNKNOWN: Final = None

Name = tuple[str, str]
"""What it is, and how it is called."""
Value = tuple[object, ...]
"""Of a topic: read queues, write queues, permissions; of a group: retry queues, most retries,
whether it may consume; of a mode: PULL or POP, members that share."""


@dataclass(slots=True)
class _Change:
    """One request."""

    value: Value
    answered_s: float | None = None
    """None: no answer came, or none that says that it was done: it may count or not."""


class TableChanges(LoadThread):
    """See the module."""

    def __init__(self, where: Where, period_s: float) -> None:
        super().__init__(where, period_s)
        self._count = 0
        self._changes: dict[Name, list[_Change]] = {}
        self._delays: list[tuple[float, dict[str, int]]] = []
        """When the master said it, and its offsets by level."""

    def forget_since(self, time_s: float) -> None:
        """The master that took them is lost, and nobody promised those that were answered since."""
        for changes in self._changes.values():
            for change in changes:
                if change.answered_s is not None and change.answered_s > time_s:
                    change.answered_s = None
        self._delays = [each for each in self._delays if each[0] <= time_s]

    def step(self, client: FrameClient) -> bool:
        number, self._count = self._count, self._count + 1
        kind = (self._change_topic, self._change_group, self._change_mode)[number % 3]
        done = kind(client, f"ChaosTable{number // 3 % _NAMES}", number + 1)
        self._ask_delays(client)
        return done

    def finish(self) -> None:
        """After the stop, of a broker that serves: change each once more, so that a slave that was
        started again since has something to copy."""
        try:
            with FrameClient(self._where(), _TIMEOUT_S) as client:
                done = [self.step(client) for _ in range(3 * _NAMES)]
        except OSError as error:
            self.violations.append(f"tables could not be changed after the faults: {error}")
        else:
            if not all(done):
                self.violations.append("a change of a table was refused after the faults")

    def _change_topic(self, client: FrameClient, name: str, number: int) -> bool:
        read, write = 1 + number % _QUEUES, 1 + number // _QUEUES % _QUEUES
        perm = _PERMS[number % len(_PERMS)]
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": read,
            "writeQueueNums": write,
            "perm": perm,
            "topicFilterType": "SINGLE_TAG",
        }
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        return self._ask(client, (_TOPIC, name), (read, write, perm), code, fields, b"")

    def _change_group(self, client: FrameClient, name: str, number: int) -> bool:
        retries, may_consume = 100 + number, number % 2 == 0
        body = {
            "groupName": name,
            "retryQueueNums": 1 + number % 2,
            "retryMaxTimes": retries,
            "consumeEnable": may_consume,
        }
        value = body["retryQueueNums"], retries, may_consume
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        return self._ask(client, (_GROUP, name), value, code, {}, json.dumps(body).encode())

    def _change_mode(self, client: FrameClient, name: str, number: int) -> bool:
        mode = ("PULL", "POP")[number % 2]
        body = {"topic": name, "consumerGroup": name, "mode": mode, "popShareQueueNum": number}
        code = RequestCode.SET_MESSAGE_REQUEST_MODE
        value = mode, number
        return self._ask(client, (_MODE, name), value, code, {}, json.dumps(body).encode())

    def _ask(
        self,
        client: FrameClient,
        name: Name,
        value: Value,
        code: int,
        fields: Mapping[str, object],
        body: bytes,
    ) -> bool:
        change = _Change(value)
        self._changes.setdefault(name, []).append(change)
        if client.call(code, fields, body).code != SEND_OK:
            return False
        change.answered_s = time.monotonic()
        return True

    def _ask_delays(self, client: FrameClient) -> None:
        asked_s = time.monotonic()
        answer = client.call(RequestCode.GET_ALL_DELAY_OFFSET, {})
        if answer.code == SEND_OK:
            self._delays.append((asked_s, _delay_offsets(answer.body)))

    # -- the judge -----------------------------------------------------------------------------

    def violations_of(self, address: tuple[str, int], as_of_s: float, who: str) -> list[str]:
        """What this broker does not know of what was answered by `as_of_s` (monotonic seconds).
        who: how it is called. Raises OSError."""
        with FrameClient(address, _TIMEOUT_S) as client:
            known = _known_of(client)
        found = []
        for (kind, name), changes in sorted(self._changes.items()):
            allowed = _allowed(changes, as_of_s)
            has = known.get((kind, name), _UNKNOWN)
            if allowed and has not in allowed:
                said = "nothing of it" if has is None else has
                found.append(f"{who} knows {said}, {kind} {name} was last set to {allowed[0]}")
        return found

    def delay_violations(self, path: Path, as_of_s: float, who: str) -> list[str]:
        """Of the file of delay offsets: what lies before what the master said at `as_of_s`, and
        ever since. Raises OSError."""
        at = max((n for n, each in enumerate(self._delays) if each[0] <= as_of_s), default=None)
        if at is None:
            return []
        try:
            saved = _delay_offsets(path.read_bytes())
        except FileNotFoundError:
            saved = {}
        needed = {
            level: min(offsets.get(level, 0) for _asked_s, offsets in self._delays[at:])
            for level in self._delays[at][1]
        }
        return [
            f"{who} has delay offset {saved.get(level, 0)} of level {level} in its file, the "
            f"master had {offset} in good time"
            for level, offset in sorted(needed.items())
            if saved.get(level, 0) < offset
        ]


def _allowed(changes: list[_Change], as_of_s: float) -> list[Value]:
    """The last value that was answered by then, those that were asked for since, and those whose
    answer never came; nothing where nothing was answered by then."""
    answered = [
        at
        for at, change in enumerate(changes)
        if change.answered_s is not None and change.answered_s <= as_of_s
    ]
    if not answered:
        return []
    doubtful = [change.value for change in changes if change.answered_s is None]
    return [change.value for change in changes[answered[-1] :]] + doubtful


def _known_of(client: FrameClient) -> dict[Name, Value]:
    known: dict[Name, Value] = {}
    topics = _table(client, RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
    for name, row in topics.items():
        value = row["readQueueNums"], row["writeQueueNums"], row["perm"]
        known[_TOPIC, name] = value
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    for name, row in _table(client, code, "subscriptionGroupTable").items():
        known[_GROUP, name] = row["retryQueueNums"], row["retryMaxTimes"], row["consumeEnable"]
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    for name, groups in _table(client, code, "messageRequestModeMap").items():
        for group, row in groups.items():
            if group == name:
                known[_MODE, name] = row["mode"], row["popShareQueueNum"]
    return known


def _table(client: FrameClient, code: int, key: str) -> dict[str, Any]:
    answer = client.call(code, {})
    if answer.code != SEND_OK:
        raise ConnectionError(f"request {code} was answered {answer.code}: {answer.remark}")
    found: dict[str, Any] = loads_lenient(answer.body)[key]
    return found


def _delay_offsets(text: bytes) -> dict[str, int]:
    found = loads_lenient(text).get("offsetTable") or {}
    return {str(level): int(offset) for level, offset in found.items()}
