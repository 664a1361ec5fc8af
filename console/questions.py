"""Questions that several pages, or the poller, ask of brokers and name servers.

Each is a function of a client and an address. Run by the workers of console/lanes.py.

Tested by tests/console/test_poller.py.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from console.lanes import Question
from console.metric_names import POLLED
from console.snapshot import HaTold, Metrics
from remoting.body.ha_runtime_info import HARuntimeInfo
from remoting.body.kv_table import KVTable
from remoting.body.metrics_answer import MetricsAnswer
from remoting.body.route import ClusterInfo
from remoting.body.topic_config import TopicList
from remoting.headers.metrics import GetMetricsRequestHeader
from remoting.remoting_serializable import JsonError, loads_body, loads_lenient
from remoting.request_code import RequestCode
from remoting.shared_decoders import decoder_of
from tools.admin_client import AdminClient
from tools.errors import AdminError

T = TypeVar("T")

POLLED_BYTES: Final = 1 << 20
"""What is asked of every broker again and again is small, and is held for each of them."""
TIMEOUT_MS: Final = 3_000
"""Of what is asked again and again: a broker that needs longer is shown as slow."""


def _runtime(client: AdminClient, address: str) -> dict[str, str]:
    response = client.call(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=TIMEOUT_MS)
    return KVTable.from_json_bytes(response.body).table


def _ha(client: AdminClient, address: str) -> HaTold:
    response = client.call(address, RequestCode.GET_BROKER_HA_STATUS, timeout_ms=TIMEOUT_MS)
    try:
        tree = loads_lenient(response.body)
    except JsonError as error:
        raise AdminError(f"broker {address}: its HA status cannot be read: {error}") from error
    return HaTold(HARuntimeInfo.from_json_bytes(response.body), tree)


def _brokers(client: AdminClient, address: str) -> ClusterInfo:
    response = client.call(address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=TIMEOUT_MS)
    return ClusterInfo.from_json_bytes(response.body)


def _topics(client: AdminClient, address: str) -> tuple[str, ...]:
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    response = client.call(address, code, timeout_ms=TIMEOUT_MS)
    return tuple(sorted(TopicList.from_json_bytes(response.body).topic_list))


def _metrics(client: AdminClient, address: str) -> Metrics:
    header = GetMetricsRequestHeader(names=",".join(POLLED))
    response = client.call(address, RequestCode.GET_METRICS, header, timeout_ms=TIMEOUT_MS)
    return Metrics(decoded(response.body, MetricsAnswer, f"broker {address}: its metrics").metrics)


def tree_of(body: bytes, most_tokens: int, whose: str) -> object:
    """An answer of Java's JSON, which fastjson writes more loosely. AdminError: it is none."""
    try:
        tree: object = loads_body(body, most_tokens)
    except JsonError as error:
        raise AdminError(f"{whose} cannot be read: {error}") from error
    return tree


def decoded(body: bytes, kind: type[T], whose: str) -> T:
    """An answer of standard JSON. AdminError: it is none, or nested deeper than Python can bear."""
    try:
        return decoder_of(kind).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AdminError(f"{whose} cannot be read: {error}") from error


METRICS: Final = Question("metrics", _metrics, POLLED_BYTES)
"""Of our brokers: what metric_names.POLLED names."""
RUNTIME: Final = Question("runtime", _runtime, POLLED_BYTES)
HA_STATUS: Final = Question("ha", _ha, POLLED_BYTES)
CLUSTER: Final = Question("cluster", _brokers)
TOPICS: Final = Question("topics", _topics)
