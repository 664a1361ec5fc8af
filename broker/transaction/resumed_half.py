"""What 323 stores: a half that was checked too often, to be checked again from the first time on.

Pure, any thread. Whether it is in its queue, and whether it may be stored now, is
EndTransactionProcessor's business.

Tested by tests/broker/transaction/test_end_transaction_processor.py.
"""

from __future__ import annotations

from typing import Final

from broker.append.diverted_messages import home_of
from broker.topic.system_topics import TRANS_HALF_TOPIC
from broker.transaction.transaction_records import CHECK_TIMES, half_copy, with_number
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.message import Message
from store.message_properties import PROPERTIES_LIMIT
from store.record import Record

_SHOWN: Final = 127


def resumed_half(half: Message, named_topic: str, store_host_flag: int) -> Record:
    """named_topic: of the request. Raises RequestError."""
    _check_topic(half, named_topic)
    properties = with_number(half, CHECK_TIMES, 0)
    if len(properties) > PROPERTIES_LIMIT:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"Put message back to {TRANS_HALF_TOPIC} failed. Its properties would have "
            f"{len(properties)} bytes (limit {PROPERTIES_LIMIT})",
        )
    return half_copy(half, properties, store_host_flag)


def _check_topic(half: Message, named: str) -> None:
    """The rights of a 5.x request are those on the topic that it names: raises RequestError if the
    half is another one's. A client of 4.9 names none."""
    home = home_of(half.properties)
    if named.strip() and named not in (half.topic, None if home is None else home[0]):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"Put message back to {TRANS_HALF_TOPIC} failed. The half message is not one of topic "
            f"{named[:_SHOWN]}",
        )
