"""clusterList: all brokers with their load. (Java: ClusterListSubCommand.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from remoting.errors import RemotingError
from tools.admin_client import AdminClient, BrokerAddress
from tools.broker_numbers import first_number, number, out_tps_key
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.options import FLAG
from tools.report import Report, columns, table

COLUMNS: Final = columns(
    "#Cluster Name clusterName | #Broker Name brokerName | #BID brokerId | #Addr brokerAddr | "
    "#Version version | #InTPS(LOAD) inTps > | #OutTPS(LOAD) outTps > | "
    "#PCWait(ms) pageCacheLockTimeMills > | #Hour hour > | #SPACE space >"
)
UNKNOWN = "-"
MORE_COLUMNS: Final = columns(
    "#Cluster Name clusterName | #Broker Name brokerName | #InTotalYest inTotalYest > | "
    "#OutTotalYest outTotalYest > | #InTotalToday inTotalToday > | #OutTotalToday outTotalToday >"
)


@command("clusterList")
def cluster_list(
    admin: AdminClient,
    more: Annotated[bool, "-m --moreStats", "Print totals instead of rates.", FLAG],
    cluster: Annotated[str | None, "-c --clusterName", "Only this cluster."],
) -> Report:
    """One row for each broker; a broker that cannot be reached has its row too."""
    brokers = admin.brokers(cluster)
    rows = [(broker, _runtime_info(admin, broker)) for broker in brokers]
    if more:
        return table(MORE_COLUMNS, [_more_row(*row) for row in rows])
    return _base_report(admin.now_ms(), rows)


def _runtime_info(admin: AdminClient, broker: BrokerAddress) -> dict[str, str] | None:
    """The runtime table; None, with a line on stderr, when the broker does not give it."""
    try:
        return admin.runtime_info(broker.address)
    except (RemotingError, AdminError) as error:
        print_error("clusterList", f"broker {broker.broker_name} {broker.broker_id}: {error}")
        return None


def _more_row(broker: BrokerAddress, info: dict[str, str] | None) -> list[object]:
    row: list[object] = [broker.cluster, broker.broker_name]
    for first, last in (("YesterdayMorning", "TodayMorning"), ("TodayMorning", "TodayNow")):
        for direction in ("msgPutTotal", "msgGetTotal"):
            table_of = info or {}
            begin, end = (number(table_of.get(direction + moment)) for moment in (first, last))
            row.append(int(end - begin))
    return row


def _base_report(
    now_ms: int, rows: Sequence[tuple[BrokerAddress, dict[str, str] | None]]
) -> Report:
    text = table(COLUMNS, [_base_row(broker, info or {}, now_ms) for broker, info in rows]).text
    return Report(text, [_base_data(broker, info, now_ms) for broker, info in rows])


def _base_row(broker: BrokerAddress, info: dict[str, str], now_ms: int) -> list[object]:
    hours = _hours(info, now_ms)
    return [
        broker.cluster,
        broker.broker_name,
        broker.broker_id,
        broker.address,
        info.get("brokerVersionDesc", ""),
        _load(info, "putTps", "send"),
        _load(info, out_tps_key(info), "pull"),
        info.get("pageCacheLockTimeMills", ""),
        UNKNOWN if hours is None else f"{hours:.2f}",
        f"{number(info.get('commitLogDiskRatio')):.4f}",
    ]


def _base_data(broker: BrokerAddress, info: dict[str, str] | None, now_ms: int) -> dict[str, Any]:
    data: dict[str, Any] = {
        "clusterName": broker.cluster,
        "brokerName": broker.broker_name,
        "brokerId": broker.broker_id,
        "brokerAddr": broker.address,
        "reachable": info is not None,
    }
    if info is not None:
        hours = _hours(info, now_ms)
        data |= {
            "version": info.get("brokerVersionDesc", ""),
            "inTps": first_number(info.get("putTps")),
            "outTps": first_number(info.get(out_tps_key(info))),
            "sendThreadPoolQueueSize": int(number(info.get("sendThreadPoolQueueSize"))),
            "pullThreadPoolQueueSize": int(number(info.get("pullThreadPoolQueueSize"))),
            "pageCacheLockTimeMills": int(number(info.get("pageCacheLockTimeMills"))),
            "hour": None if hours is None else round(hours, 2),
            "space": number(info.get("commitLogDiskRatio")),
        }
    return data


def _load(info: dict[str, str], tps_key: str, pool: str) -> str:
    size = info.get(f"{pool}ThreadPoolQueueSize", "")
    wait = info.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "")
    return f"{first_number(info.get(tps_key)):.2f}({size},{wait}ms)"


def _hours(info: dict[str, str], now_ms: int) -> float | None:
    """Hours since the earliest message; None where a Java broker does not know it (-1: its log is
    empty, or begins less than twice maxMessageSize before its end), for which Java's tool prints
    those since 1970."""
    earliest_ms = number(info.get("earliestMessageTimeStamp"))
    return max(now_ms - earliest_ms, 0) / 3_600_000 if earliest_ms > 0 else None
