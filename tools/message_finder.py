"""Finding messages by key through the brokers' indexes.

Runs in the command's main thread. (Java: MQAdminImpl.queryMessage.)
"""

from __future__ import annotations

from typing import Final

from remoting.headers.query import UNIQUE_KEY_QUERY, QueryMessageRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import TIMEOUT_MS, AdminClient, addresses
from tools.message_decoder import UNIQ_KEY, MessageExt, decode_messages
from tools.message_text import KEYS

MAX_BY_KEY: Final = 64
END_OF_TIME: Final = 2**63 - 1


def query_messages(
    admin: AdminClient,
    topic: str,
    key: str,
    max_num: int,
    *,
    unique: bool,
    begin_ms: int = 0,
    end_ms: int = END_OF_TIME,
    route_of: str | None = None,
) -> list[MessageExt]:
    """Messages under a key at every broker of a topic; hash collisions are left out.

    route_of: whose brokers are asked instead of the topic's own, which may have no route.
    """
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=max_num, begin_timestamp=begin_ms, end_timestamp=end_ms
    )
    found: list[MessageExt] = []
    for address in addresses(admin.route(route_of or topic)):
        response = admin.call(
            address,
            RequestCode.QUERY_MESSAGE,
            header,
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
            extra={UNIQUE_KEY_QUERY: str(unique).lower()},
            timeout_ms=3 * TIMEOUT_MS,
        )
        if response.code == ResponseCode.SUCCESS:
            found += decode_messages(response.body)
    matching = [m for m in found if m.topic == topic and _has_key(m, key, unique)]
    return sorted(matching, key=lambda message: message.store_timestamp)


def _has_key(message: MessageExt, key: str, unique: bool) -> bool:
    if unique:
        return message.properties.get(UNIQ_KEY) == key
    return key in message.properties.get(KEYS, "").split(" ")
