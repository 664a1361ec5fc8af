"""Lite topics of 5.5: what brokers have of them, of one parent, one lite topic, one client, one
group; and another look at what a group's clients subscribe.

But for getBrokerLiteInfo the brokers are those of the parent's route, a master before its slaves.
(Java: GetBrokerLiteInfoSubCommand, GetParentTopicInfoSubCommand, GetLiteTopicInfoSubCommand,
GetLiteClientInfoSubCommand, GetLiteGroupInfoSubCommand, TriggerLiteDispatchSubCommand.)

Tested by tests/tools/test_mqadmin_lite.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeVar

from remoting.body.json_bean import JsonBean
from remoting.body.lite import (
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
    LiteLagInfo,
)
from remoting.body.stats import TopicOffset
from remoting.command_custom_header import CommandCustomHeader
from remoting.errors import RemotingError
from remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from remoting.lite_names import to_lmq_name
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient, broker_address
from tools.broker_changes import Change, send_each
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.message_text import time_text
from tools.options import FLAG, POSITIVE, SHOW_DEFAULT
from tools.report import Cell, Report, columns, safe_line, table
from tools.targets import Address, Members, member_targets

BROKER_COLUMNS: Final = columns(
    "#Broker brokerAddr | #Store Type storeType | #Max LMQ maxLmqNum > | "
    "#Current LMQ currentLmqNum > | #SubscriptionCount liteSubscriptionCount > | "
    "#OrderInfoCount orderInfoCount > | #CQTableSize cqTableSize > | "
    "#OffsetTableSize offsetTableSize > | #eventMapSize eventMapSize >"
)
PARENT_COLUMNS: Final = columns(
    "#Broker Name brokerName | #TTL ttl > | #Lite Count liteTopicCount > | #LMQ NUM lmqNum > | "
    "#GROUPS groups"
)
TOPIC_COLUMNS: Final = columns(
    "#Broker Name brokerName | #MinOffset minOffset > | #MaxOffset maxOffset > | "
    "#LastUpdate lastUpdateTimestamp | #Sharding shardingToBroker | #SubClientCount subscriber >"
)
CLIENT_COLUMNS: Final = columns(
    "#Broker brokerName | #LiteTopicCount liteTopicCount > | #LastAccessTime lastAccessTime | "
    "#LastConsumeTime lastConsumeTime"
)
OFFSET_COLUMNS: Final = columns(
    "#Broker Name brokerName | #BrokerOffset brokerOffset > | #ConsumeOffset consumerOffset > | "
    "#LagCount lagCount > | #LastUpdate lastTimestamp"
)
LAG_COLUMNS: Final = columns(
    "NO number | Lite Topic liteTopic | Lag Count lagCount > | "
    "UnconsumedTimestamp earliestUnconsumedTimestamp"
)
_QUESTIONS: Final[Mapping[type[JsonBean], tuple[str, RequestCode]]] = {
    GetBrokerLiteInfoResponseBody: ("getBrokerLiteInfo", RequestCode.GET_BROKER_LITE_INFO),
    GetParentTopicInfoResponseBody: ("getParentTopicInfo", RequestCode.GET_PARENT_TOPIC_INFO),
    GetLiteTopicInfoResponseBody: ("getLiteTopicInfo", RequestCode.GET_LITE_TOPIC_INFO),
    GetLiteClientInfoResponseBody: ("getLiteClientInfo", RequestCode.GET_LITE_CLIENT_INFO),
    GetLiteGroupInfoResponseBody: ("getLiteGroupInfo", RequestCode.GET_LITE_GROUP_INFO),
}
"""An answer's body to the command that wants it, and the request."""
_NONE: Final = "-"
_UNKNOWN: Final = "N/A"

_Parent = Annotated[str, "-p --parentTopic", "Parent topic."]
_Group = Annotated[str, "-g --group", "Lite group, which is bound to the parent."]
_Body = TypeVar("_Body", bound=JsonBean)


@command("getBrokerLiteInfo")
def get_broker_lite_info(
    admin: AdminClient,
    address: Address,
    cluster: Members,
    detail: Annotated[bool, "-d --showDetail", "Show the parents and their groups, too.", FLAG],
) -> Report:
    """How much of lite topics there is at brokers."""
    targets = {target: target for target in member_targets(admin, address, cluster)}
    found = _ask(admin, targets, GetBrokerLiteInfoResponseBody)
    rows = [
        (
            target,
            info.store_type or _NONE,
            info.max_lmq_num,
            info.current_lmq_num,
            info.lite_subscription_count,
            info.order_info_count,
            info.cq_table_size,
            info.offset_table_size,
            info.event_map_size,
        )
        for target, info in found.items()
    ]
    lines = [table(BROKER_COLUMNS, rows).text]
    if detail:
        for info in found.values():
            lines.append(f"Topic Meta: {_json(info.topic_meta)}")
            lines.append(f"Group Meta: {_json(info.group_meta)}")
    return _report(lines, found)


@command("getParentTopicInfo")
def get_parent_topic_info(admin: AdminClient, parent: _Parent) -> Report:
    """One parent: its lite topics and groups, and after how many minutes a lite topic ends."""
    header = GetParentTopicInfoRequestHeader(topic=parent)
    found = _ask(admin, _brokers(admin, parent), GetParentTopicInfoResponseBody, header)
    rows = [
        (name, info.ttl, info.lite_topic_count, info.lmq_num, _list(info.groups))
        for name, info in found.items()
    ]
    heading = f"Parent Topic Info: [{parent}]"
    return _report([heading, table(PARENT_COLUMNS, rows).text], found)


@command("getLiteTopicInfo")
def get_lite_topic_info(
    admin: AdminClient,
    parent: _Parent,
    lite: Annotated[str, "-l --liteTopic", "Lite topic."],
    clients: Annotated[bool, "-s --showClientId", "List its subscribers.", FLAG],
) -> Report:
    """One lite topic: its offsets and subscribers."""
    header = GetLiteTopicInfoRequestHeader(parent_topic=parent, lite_topic=lite)
    found = _ask(admin, _brokers(admin, parent), GetLiteTopicInfoResponseBody, header)
    rows, subscribers = [], []
    for name, info in found.items():
        offsets = info.topic_offset or TopicOffset(
            min_offset=0, max_offset=0, last_update_timestamp=0
        )
        time = _time(offsets.last_update_timestamp, _NONE)
        sharding = str(info.sharding_to_broker).lower()
        row = (name, offsets.min_offset, offsets.max_offset, time, sharding, len(info.subscriber))
        rows.append(row)
        subscribers.append(_list(f"{one.client_id}@{one.group}" for one in info.subscriber))
    lines = [
        f"Lite Topic Info: [{parent}] [{lite}] [{to_lmq_name(parent, lite)}]",
        table(TOPIC_COLUMNS, rows).text,
    ]
    return _report([*lines, *(subscribers if clients else ())], found)


@command("getLiteClientInfo")
def get_lite_client_info(
    admin: AdminClient,
    parent: _Parent,
    group: _Group,
    client_id: Annotated[str, "-c --clientId", "Client of the group."],
    detail: Annotated[bool, "-s --showDetail", "List what it subscribes.", FLAG],
) -> Report:
    """One client of a lite group: how much it subscribes, and when it last fetched."""
    header = GetLiteClientInfoRequestHeader(parent_topic=parent, group=group, client_id=client_id)
    found = _ask(admin, _brokers(admin, parent), GetLiteClientInfoResponseBody, header)
    rows = [
        (
            name,
            info.lite_topic_count if info.lite_topic_count > 0 else _UNKNOWN,
            _time(info.last_access_time, _UNKNOWN),
            _time(info.last_consume_time, _UNKNOWN),
        )
        for name, info in found.items()
    ]
    lines = [
        f"Lite Client Info: [{parent}] [{group}] [{client_id}]",
        table(CLIENT_COLUMNS, rows).text,
    ]
    if detail:
        named = (info.lite_topic_set for info in found.values() if info.lite_topic_set)
        lines += [f"Lite Topics: {_list(each)}" for each in named]
    return _report(lines, found)


@command("getLiteGroupInfo")
def get_lite_group_info(
    admin: AdminClient,
    parent: _Parent,
    group: _Group,
    lite: Annotated[str | None, "-l --liteTopic", "Only this lite topic, with its offsets."],
    top: Annotated[
        int, "-k --topK", "Lite topics of each list, of each broker.", POSITIVE, SHOW_DEFAULT
    ] = 20,
) -> Report:
    """What a group has not consumed: in all, and where the most and the oldest of it is."""
    header = GetLiteGroupInfoRequestHeader(group=group, lite_topic=lite, top_k=top)
    found = _ask(admin, _brokers(admin, parent), GetLiteGroupInfoResponseBody, header)
    lines = [f"Lite Group Info: [{group}] [{parent}]"]
    if lite:
        rows = [_offsets_row(name, info) for name, info in found.items()]
        lines.append(table(OFFSET_COLUMNS, rows).text)
    lines.append(f"Total Lag Count: {sum(max(0, info.total_lag_count) for info in found.values())}")
    times = [info.earliest_unconsumed_timestamp for info in found.values()]
    oldest_ms = min((each for each in times if each > 0), default=0)
    age = f" ({max(0, admin.now_ms() - oldest_ms) // 1000} s ago)" if oldest_ms else ""
    lines.append(f"Min Unconsumed Timestamp: {oldest_ms or _NONE}{age}")
    if not lite:
        counts = [lag for info in found.values() for lag in info.lag_count_top_k or ()]
        counts.sort(key=lambda lag: -lag.lag_count)
        ages = [lag for info in found.values() for lag in info.lag_timestamp_top_k or ()]
        ages.sort(key=lambda lag: lag.earliest_unconsumed_timestamp)
        lines += ["", "------TopK by lag count-----", _lag_table(counts)]
        lines += ["", "------TopK by lag time------", _lag_table(ages)]
    return _report(lines, found)


@command("triggerLiteDispatch")
def trigger_lite_dispatch(
    admin: AdminClient,
    parent: _Parent,
    group: _Group,
    client_id: Annotated[str | None, "-c --clientId", "Only this client of the group."],
    broker_name: Annotated[str | None, "-b --brokerName", "Only at this broker."],
) -> Report:
    """Have brokers look again at every lite topic that a group's clients subscribe."""
    brokers = _brokers(admin, parent)
    if broker_name is not None:
        if broker_name not in brokers:
            raise AdminError(f"{parent} has no broker {broker_name}; it has {', '.join(brokers)}")
        brokers = {broker_name: brokers[broker_name]}
    header = TriggerLiteDispatchRequestHeader(group=group, client_id=client_id)
    wanted = Change(RequestCode.TRIGGER_LITE_DISPATCH, header)
    done = send_each(admin, list(brokers.values()), wanted, goes_on=True)
    names = [name for name, address in brokers.items() if address in done]
    lines = [f"Group And Topic Info: [{group}] [{parent}]"]
    lines += [f"{name}  dispatched" for name in names]
    return Report("\n".join(map(safe_line, lines)), {"brokerNames": names})


# -- asking ------------------------------------------------------------------------------------


def _brokers(admin: AdminClient, parent: str) -> dict[str, str]:
    """Names and addresses of the brokers that have the parent."""
    found = {}
    for data in admin.route(parent).broker_datas:
        address = broker_address(data)
        if address is not None:
            found[data.broker_name or ""] = address
    return found


def _ask(
    admin: AdminClient,
    brokers: Mapping[str, str],
    kind: type[_Body],
    header: CommandCustomHeader | None = None,
) -> dict[str, _Body]:
    """What each said. Those that said nothing are complained about, if there are others."""
    name, code = _QUESTIONS[kind]
    found, failures = {}, []
    for broker, address in brokers.items():
        try:
            found[broker] = kind.from_json_bytes(admin.call(address, code, header).body)
        except (RemotingError, AdminError) as error:
            failures.append(str(error))
    if not found:
        raise AdminError("; ".join(failures))
    for failure in failures:
        print_error(name, failure)
    return found


def _report(lines: list[str], found: Mapping[str, JsonBean]) -> Report:
    return Report("\n".join(lines), {name: info.to_json() for name, info in found.items()})


# -- text --------------------------------------------------------------------------------------


def _json(tree: object) -> str:
    return safe_line(json.dumps(tree, ensure_ascii=False, separators=(",", ":")))


def _list(names: Iterable[str]) -> str:
    return safe_line(f"[{', '.join(names)}]")


def _time(time_ms: int, none: str) -> Cell:
    return Cell(time_text(time_ms) if time_ms > 0 else none, time_ms)


def _offsets_row(name: str, info: GetLiteGroupInfoResponseBody) -> tuple[object, ...]:
    offsets = info.lite_topic_offset_wrapper
    if offsets is None:
        return (name, _NONE, _NONE, _NONE, _NONE)
    lag = offsets.broker_offset - offsets.consumer_offset
    time = _time(offsets.last_timestamp, _NONE)
    return (name, offsets.broker_offset, offsets.consumer_offset, lag, time)


def _lag_table(lags: list[LiteLagInfo]) -> str:
    rows = [
        (number, lag.lite_topic, lag.lag_count, _time(lag.earliest_unconsumed_timestamp, _NONE))
        for number, lag in enumerate(lags, 1)
    ]
    return table(LAG_COLUMNS, rows).text
