"""Questions about timers, pops, transactions and the log's wholeness; and a recall's handle.

Each is a function of a client and an address; 60, 61, 202, 208, 200055 and 28910 (status). Run by
the workers of console/lanes.py. What a broker answers is checked here: a number is a number.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from console.errors import ConsoleError
from console.lanes import Question
from console.questions import TIMEOUT_MS
from remoting.body.log_verification import LogVerification
from remoting.body.stats import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from remoting.command_custom_header import decode_header
from remoting.headers.admin import GetConsumeStatsRequestHeader
from remoting.headers.log_digests import VerifyLogRequestHeader
from remoting.headers.pop import PollingInfoRequestHeader, PollingInfoResponseHeader
from remoting.headers.topic import GetTopicStatsInfoRequestHeader
from remoting.remoting_serializable import JsonError, loads_lenient
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.errors import AdminError

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_GROUP: Final = "CID_RMQ_SYS_TRANS"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
_READ_TIME: Final = struct.Struct(">q")
_MOST_TOPICS: Final = 10_000
_HANDLE_PARTS: Final = 5
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


# -- timers ------------------------------------------------------------------------------------


def _timer_read_time(client: AdminClient, address: str) -> int:
    response = client.call(address, RequestCode.GET_TIMER_CHECK_POINT, timeout_ms=TIMEOUT_MS)
    if len(response.body) < _READ_TIME.size:
        raise AdminError(f"broker {address}: its timer check point has {len(response.body)} bytes")
    read_ms: int = _READ_TIME.unpack_from(response.body)[0]
    return read_ms


def _timer_counts(client: AdminClient, address: str) -> dict[str, int]:
    response = client.call(address, RequestCode.GET_TIMER_METRICS, timeout_ms=TIMEOUT_MS)
    try:
        tree = loads_lenient(response.body)
    except JsonError as error:
        raise AdminError(f"broker {address}: its timer metrics cannot be read: {error}") from error
    counts = tree.get("timingCount") if isinstance(tree, dict) else None
    found: dict[str, int] = {}
    for topic, one in list((counts if isinstance(counts, dict) else {}).items())[:_MOST_TOPICS]:
        count = one.get("count") if isinstance(one, dict) else None
        if isinstance(count, int) and not isinstance(count, bool):
            found[topic] = count
    return found


TIMER_READ_TIME: Final = Question("timer-read-time", _timer_read_time)
"""60: up to which time (wall clock ms) slots are delivered."""
TIMER_COUNTS: Final = Question("timer-counts", _timer_counts)
"""61: how many wait for each topic."""


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """What a handle says: the answer to a send of a timer message has it."""

    topic: str
    broker_name: str
    deliver_ms: str
    unique_key: str

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """Raises ConsoleError for one that no broker gave out."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConsoleError(_NO_HANDLE) from error
        parts = raw.decode("utf-8", "replace").rstrip(" ").split(" ")
        if parts[0] != "v1" or len(parts) < _HANDLE_PARTS or _CONTROL.search(" ".join(parts)):
            raise ConsoleError(_NO_HANDLE)
        return cls(*parts[1:_HANDLE_PARTS])


_NO_HANDLE: Final = (
    "This is no recall handle: it is the recallHandle of the answer to the send of a timer message."
)


# -- transactions ------------------------------------------------------------------------------


def topic_queues(topic: str) -> Question[list[TopicOffset]]:
    """202 of one broker: a topic's queues there; none if it has no such topic."""

    def ask(client: AdminClient, address: str) -> list[TopicOffset]:
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        body = client.call(address, code, header, timeout_ms=TIMEOUT_MS).body
        return list(TopicStatsTable.from_json_bytes(body).offset_table.values())

    return Question(("queues", topic), ask)


def group_progress(group: str, topic: str) -> Question[list[OffsetWrapper]]:
    """208 of one broker: a group's progress in a topic."""

    def ask(client: AdminClient, address: str) -> list[OffsetWrapper]:
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        code = RequestCode.GET_CONSUME_STATS
        body = client.call(address, code, header, timeout_ms=TIMEOUT_MS).body
        return list(ConsumeStats.from_json_bytes(body).offset_table.values())

    return Question(("progress", group, topic), ask)


# -- pop ---------------------------------------------------------------------------------------


def waiting_pops(group: str, topic: str) -> Question[int]:
    """200055: how many pops of a group wait for any queue of a topic."""

    def ask(client: AdminClient, address: str) -> int:
        header = PollingInfoRequestHeader(consumer_group=group, topic=topic, queue_id=-1)
        response = client.call(address, RequestCode.POLLING_INFO, header, timeout_ms=TIMEOUT_MS)
        return decode_header(PollingInfoResponseHeader, response.ext_fields).polling_num

    return Question(("pops", group, topic), ask)


# -- the log's wholeness -----------------------------------------------------------------------


def _verification(client: AdminClient, address: str) -> LogVerification:
    header: Any = VerifyLogRequestHeader(action="status")
    body = client.call(address, RequestCode.VERIFY_LOG, header, timeout_ms=TIMEOUT_MS).body
    return LogVerification.from_json_bytes(body)


VERIFICATION: Final = Question("verification", _verification)
"""28910 with "status": nothing is read for it."""
