"""Look-ups: acknowledged messages are found by their keys and by their offset ids, too.

A consumer reads queues; operators look for one message by what its sender or its answer named. A
sample, after a run. Any thread.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Final

from remoting.request_code import RequestCode
from tools.chaos.ack_log import Ack, read_body
from tools.chaos.frame_client import FrameClient
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.message_decoder import decode_messages

LOOK_UPS: Final = 100
"""Messages of a run's sample."""
_TIMEOUT_S: Final = 10.0
_INDEXED_S: Final = 15.0
_MOST: Final = 64
_END_OF_TIME: Final = (1 << 63) - 1


def key_of(producer: int, sequence: int) -> str:
    """Of a message that is sent with one."""
    return f"key-{producer}-{sequence}"


def unique_key_of(producer: int, sequence: int) -> str:
    """What a client's library makes for each message."""
    return f"{producer:08X}{sequence:024X}"


def properties_of(producer: int, sequence: int) -> str:
    """The property text of a message."""
    unique = unique_key_of(producer, sequence)
    return f"KEYS\x01{key_of(producer, sequence)}\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02"


def sample(acks: Sequence[Ack], count: int, seed: int) -> list[Ack]:
    """Some of the answers, the first and the last among them."""
    named = [ack for ack in acks if ack.phy_offset >= 0]
    if len(named) <= count:
        return named
    chosen = random.Random(seed).sample(range(1, len(named) - 1), count - 2)
    return [named[at] for at in (0, *sorted(chosen), len(named) - 1)]


def not_found(address: tuple[str, int], topic: str, acks: Sequence[Ack]) -> list[str]:
    """Those of the messages that some way of looking for them does not find. Raises OSError."""
    found = []
    with FrameClient(address, _TIMEOUT_S) as client:
        for ack in acks:
            name = f"message {ack.sequence} of producer {ack.producer}, answered {ack.code}"
            if not _is_at(client, ack):
                found.append(f"{name}: not found by its offset id ({ack.phy_offset})")
            key = key_of(ack.producer, ack.sequence)
            if not _has_key(client, topic, key, ack, is_unique=False):
                found.append(f"{name}: not found by its key {key}")
            unique = unique_key_of(ack.producer, ack.sequence)
            if not _has_key(client, topic, unique, ack, is_unique=True):
                found.append(f"{name}: not found by its unique key {unique}")
    return found


def found_late(address: tuple[str, int], topic: str, acks: Sequence[Ack]) -> list[str]:
    """The same, once the index has had the time to be built. Raises OSError."""
    missing: list[str] = []

    def is_complete() -> bool:
        missing[:] = not_found(address, topic, acks)
        return not missing

    with contextlib.suppress(ChaosError):
        wait_for(is_complete, _INDEXED_S, "the index")
    return missing


def _is_at(client: FrameClient, ack: Ack) -> bool:
    answer = client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": ack.phy_offset})
    return answer.code == 0 and _is_in(answer.body, ack)


def _has_key(client: FrameClient, topic: str, key: str, ack: Ack, *, is_unique: bool) -> bool:
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": _MOST,
        "beginTimestamp": 0,
        "endTimestamp": _END_OF_TIME,
        **({"_UNIQUE_KEY_QUERY": "true"} if is_unique else {}),
    }
    answer = client.call(RequestCode.QUERY_MESSAGE, fields)
    return answer.code == 0 and _is_in(answer.body, ack)


def _is_in(body: bytes, ack: Ack) -> bool:
    wanted = ack.producer, ack.sequence
    return any(read_body(message.body) == wanted for message in decode_messages(body))
