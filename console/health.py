"""Health: what is not well in a cluster, in sentences, from one snapshot.

Pure; any thread. An empty list means that all is well *as far as it is known*: what could not be
read is a finding, too. Must not ask anybody.

Tested by tests/console/test_health.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from console import metric_names as names
from console.snapshot import MAX_BROKERS, MAX_TOPICS, BrokerSeen, ClusterSnapshot
from remoting.body.ha_runtime_info import HAConnectionRuntimeInfo, HARuntimeInfo
from tools.broker_numbers import number
from tools.commands.ha_status import (
    CATCHING_UP,
    DISCONNECTED,
    duration_text,
    replica_state,
    size_text,
)

STALE_MS: Final = 15_000
"""A broker that said nothing for so long is not shown as well."""
LAG_S: Final = 5.0
SKEW_MS: Final = 30_000
"""Between the broker's clock and the console's, the way of the answer included."""
DISK_RATIO: Final = 0.85
_MOST_NAMES: Final = 5
"""Of processes: what a broker calls them, and how many there are, is its own word."""
SEVERITIES: Final = ("critical", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not well."""

    severity: str
    """critical: messages are refused or at risk now; warning; note: something is not known."""
    what: str
    """Whose state it is."""
    sentence: str
    url: str


def findings(snapshot: ClusterSnapshot, now_ms: int) -> list[Finding]:
    """Everything that is not well, the worst first. `now_ms`: monotonic."""
    found = [*_of_name_servers(snapshot), *_of_groups(snapshot)]
    for broker in snapshot.brokers:
        found += _of_broker(broker, now_ms)
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def verdict(found: list[Finding], snapshot: ClusterSnapshot) -> str:
    """The first sentence of the overview."""
    if not snapshot.brokers:
        if any(told.value is not None for told in snapshot.names.values()):
            return "The name servers know no broker."
        return "Nothing is known of the cluster yet."
    if not found:
        masters = len(snapshot.masters())
        replicas = len(snapshot.brokers) - masters
        return f"All well: {_n(masters, 'master')} and {_n(replicas, 'replica')} answer."
    worst = sum(finding.severity == found[0].severity for finding in found)
    kind = {"critical": "critical", "warning": "not well", "note": "not known"}[found[0].severity]
    return f"{_n(worst, 'thing')} {'is' if worst == 1 else 'are'} {kind}."


def _n(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _of_name_servers(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    dead = {name: told for name, told in snapshot.names.items() if told.error is not None}
    for name, told in dead.items():
        severity = "critical" if len(dead) == len(snapshot.names) else "warning"
        yield Finding(severity, name, f"Name server {name} does not answer: {told.error}", "/")
    if snapshot.brokers_left_out:
        more = _n(snapshot.brokers_left_out, "broker")
        yield Finding(
            "warning",
            "name servers",
            f"The name servers list {more} more, which this console does not watch: it watches "
            f"{MAX_BROKERS:,}, those that it knew first, and none without host:port.",
            "/",
        )
    if snapshot.topics_left_out:
        more = _n(snapshot.topics_left_out, "topic")
        yield Finding(
            "warning",
            "name servers",
            f"The name servers list {more} more than the first {MAX_TOPICS:,}, which are shown.",
            "/topics",
        )


def _of_groups(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for (cluster, name), members in snapshot.groups().items():
        if not any(member.is_master and member.registered for member in members):
            yield Finding(
                "critical",
                name,
                f"{name} of {cluster} has no master: nothing can be sent to it.",
                group_url(cluster, name),
            )


def _of_broker(broker: BrokerSeen, now_ms: int) -> Iterator[Finding]:
    url = group_url(broker.place.cluster, broker.place.broker_name)

    def finding(severity: str, sentence: str) -> Finding:
        return Finding(severity, broker.title, f"{broker.title} {sentence}", url)

    if not broker.registered:
        yield finding("warning", "is no longer listed by the name servers.")
        return
    error = broker.newest_error
    if error is not None:
        what = "refuses the console's questions" if broker.is_refusing else "does not answer"
        yield finding("critical" if broker.is_master else "warning", f"{what}: {error}")
    elif not broker.newest_ms and broker.has_answered:
        why = broker.runtime.error or broker.ha.error
        yield finding("warning", f"tells nothing of itself: {why}")
    elif not broker.newest_ms:
        yield finding("note", "has not been asked yet.")
    elif now_ms - broker.newest_ms > STALE_MS:
        old = duration_text((now_ms - broker.newest_ms) / 1000)
        yield finding("warning", f"has said nothing for {old}.")
    if broker.ha.value is not None and error is None:
        for severity, sentence in _of_replication(broker.ha.value.info):
            yield finding(severity, sentence)
    if abs(skew_ms := broker.skew_ms) > SKEW_MS:
        way = "ahead of" if skew_ms > 0 else "behind"
        how_much = duration_text(abs(skew_ms) / 1000)
        yield finding("warning", f"has a clock that is {how_much} {way} this console's.")
    for severity, sentence in _of_figures(broker):
        yield finding(severity, sentence)


def _of_replication(info: HARuntimeInfo) -> Iterator[tuple[str, str]]:
    """What haStatus would say that is not well."""
    if info.isolated:
        yield "critical", f"serves nothing: {info.isolated}"
    group = info.group_info
    if group is not None and info.master and not group.takes_messages:
        yield "critical", "leads but takes no messages: too few replicas are in sync."
    if group is not None and group.without_master_millis:
        yield "critical", f"has no master for {duration_text(group.without_master_millis / 1000)}."
    if group is not None and group.two_masters_seen:
        yield "critical", "was told of two masters in one epoch: its log says which."
    for replica in info.ha_connection_info if info.master else ():
        yield from _of_replica(replica)
    if not info.master:
        client = info.ha_client_runtime_info
        if client.last_error and client.last_error_over is False:
            yield "warning", f"is not linked with its master: {client.last_error}"


def _of_replica(replica: HAConnectionRuntimeInfo) -> Iterator[tuple[str, str]]:
    state, name = replica_state(replica), replica.id or replica.addr or "a replica"
    lag = size_text(max(replica.diff, 0))
    if replica.lag_seconds is not None:
        lag += f", {replica.lag_seconds:.1f} s"
    if state == DISCONNECTED:
        yield "critical", f"has lost its replica {name}, which lacks {lag}."
    elif state == CATCHING_UP:
        yield "warning", f"has a replica that is catching up: {name} lacks {lag}."
    elif replica.lag_seconds is not None and replica.lag_seconds > LAG_S:
        yield "warning", f"has a replica behind: {name} lacks {lag}."


def _of_figures(broker: BrokerSeen) -> Iterator[tuple[str, str]]:
    ratio = disk_ratio(broker)
    if ratio is not None and ratio > DISK_RATIO:
        yield "warning", f"has a disk that is {ratio:.0%} full."
    metrics = broker.metrics.value
    if metrics is None or broker.newest_error is not None:
        return
    if metrics.total(names.BROKER_READY) == 0:
        severity = "critical" if broker.is_master else "warning"
        yield severity, "is not ready: /readyz at its metrics port says why."
    down = sorted(
        labels.get("process", "") for labels, up in metrics.rows(names.PROCESS_UP) if not up
    )
    if down:
        yield "critical", f"lacks its process {', '.join(down[:_MOST_NAMES])}."
    if damaged := metrics.total(names.FENCED_RANGES):
        yield "critical", f"has {damaged:.0f} damaged ranges in its log that are not repaired."


def disk_ratio(broker: BrokerSeen) -> float | None:
    """The used share of its fullest partition, or as a Java broker tells of its commit log's."""
    metrics, runtime = broker.metrics.value, broker.runtime.value
    used = [] if metrics is None else [ratio for _, ratio in metrics.rows(names.DISK_USED)]
    used = [ratio for ratio in used if 0 <= ratio <= 1]
    if used:
        return max(used)
    return number(runtime.get("commitLogDiskRatio")) if runtime else None


def restarts(broker: BrokerSeen) -> float | None:
    """How often its supervisor has started processes again, since its start."""
    metrics = broker.metrics.value
    return None if metrics is None else metrics.total(names.PROCESS_RESTARTS)


def group_url(cluster: str, name: str) -> str:
    """The page of a broker group."""
    return f"/replication/group?cluster={quote(cluster, safe='')}&name={quote(name, safe='')}"
