"""Groups and their members as brokers tell them: lists, owners of queues, a client. No broker."""

from __future__ import annotations

from typing import Any

import pytest

from console import known_groups
from console.known_groups import GROUPS_OF
from console.lanes import Question
from console.page import ConsoleError, Query, Reader
from console.views import group_changes, groups, search
from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats, OffsetWrapper
from remoting.request_code import RequestCode as Code
from tests.console.pages import (
    HOSTILE,
    PeerLanes,
    Peers,
    page,
    peer_reader,
    rows,
    seen,
    shown,
)

B, C = "b0:10911", "c0:10911"
TABLE = Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
LIST, GROUP = groups.VIEWS[:2]


def table(*names: str) -> dict[str, Any]:
    return {"subscriptionGroupTable": {name: {"groupName": name} for name in names}}


def names(who: Reader, **query: str) -> list[str]:
    return [row["group"] for row in rows(page(groups.groups, who, **query), "groups")]


# -- which groups there are --------------------------------------------------------------------


def test_groups_are_those_of_the_masters_tables() -> None:
    """Not a pop's retry topics; and those without a retry topic, too."""
    peers = Peers({(B, TABLE): table("g", "pops"), (C, TABLE): table("g", "TOOLS_CONSUMER")})
    topics = ("T", "%RETRY%g", "%RETRY%pops+T", "%RETRY%pops_T", "%RETRY%gone")
    who = peer_reader(peers, seen("b"), seen("c"), seen("b", 1), topics=topics)
    assert names(who) == ["g", "pops"]
    assert names(who, system="1") == ["TOOLS_CONSUMER", "g", "pops"]
    assert names(who, begins="p") == ["pops"]
    assert "b1:10911" not in {address for address, _, _ in peers.asked}
    assert peers.codes(B).count(TABLE) == 1


def test_retry_topics_stand_in_for_masters_that_do_not_tell() -> None:
    peers = Peers({(B, TABLE): table("pops")})
    topics = ("T", "%RETRY%old", "%RETRY%old_T", "%RETRY%pops_T", "%RETRY%pops+T", "%RETRY%a_b")
    who = peer_reader(peers, seen("b"), seen("c"), topics=topics)
    assert names(who) == ["a_b", "old", "pops"]
    assert page(groups.groups, who).context["untold"] == 1
    assert "1 master has not told its groups" in shown(LIST, who)


def test_a_hostile_table_of_groups_is_names_and_no_more() -> None:
    bodies = (b"[1]", b'{"subscriptionGroupTable":7}', b"\xff{", b"{" * 1_000, b"")
    for body in bodies:
        assert names(peer_reader(Peers({(B, TABLE): body}), seen("b"))) == []
    many = table(*(f"g{n:05}" for n in range(25_000)))
    assert len(names(peer_reader(Peers({(B, TABLE): many}), seen("b")))) == known_groups.MOST_GROUPS
    odd = peer_reader(Peers({(B, TABLE): table(HOSTILE[:200], "n" * 300, "")}), seen("b"))
    assert names(odd) == [HOSTILE[:200]]
    assert "<img src=x" not in shown(LIST, odd)


# -- the list ----------------------------------------------------------------------------------


def many_groups() -> Peers:
    def stats(header: Any) -> bytes:
        behind = OffsetWrapper(broker_offset=int(header.consumer_group[1:]))
        queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
        return ConsumeStats(offset_table={queue: behind}, consume_tps=1.0).to_json_bytes()

    brokers = {"b": {"cluster": "C", "brokerName": "b", "brokerAddrs": {"0": B}}}
    return Peers(
        {
            (B, TABLE): table(*(f"g{n:03}" for n in range(70))),
            ("ns:1", Code.GET_ROUTEINFO_BY_TOPIC): (17, "no route"),
            ("ns:1", Code.GET_BROKER_CLUSTER_INFO): {
                "brokerAddrTable": brokers,
                "clusterAddrTable": {"C": ["b"]},
            },
            (B, Code.GET_CONSUME_STATS): stats,
        }
    )


def test_progress_is_read_for_the_groups_of_the_shown_page() -> None:
    for number, first in ((1, 0), (2, 30), (3, 60)):
        peers = many_groups()
        found = rows(page(groups.groups, peer_reader(peers, seen("b")), page=str(number)), "groups")
        count = min(70 - first, groups.COUNTED)
        counted = {row["group"]: row["diffTotal"] for row in found if row["diffTotal"] is not None}
        assert counted == {f"g{n:03}": n for n in range(first, first + count)}
        assert peers.codes(B).count(Code.GET_CONSUME_STATS) == count


def test_sorted_by_lag_a_page_is_sorted_by_itself() -> None:
    who = peer_reader(many_groups(), seen("b"))
    query = {"page": "2", "sort": "diffTotal", "desc": "1"}
    text = shown(LIST, who, query)
    assert text.index("g059") < text.index("g030")
    assert "g060" not in text
    assert "each page is sorted by itself" in text


def test_a_filtered_list_counts_what_it_shows() -> None:
    peers = many_groups()
    found = rows(page(groups.groups, peer_reader(peers, seen("b")), q="g06"), "groups")
    counted = [row["group"] for row in found if row["diffTotal"] is not None]
    assert counted == [f"g{n:03}" for n in range(60, 70)]


def test_a_search_waits_for_no_broker() -> None:
    who = peer_reader(Peers({}), seen("b"), silent=[B], topics=["%RETRY%g"])
    lanes: Any = who.lanes
    assert isinstance(lanes, PeerLanes)
    assert rows(page(search.search, who, q="g"), "hits") == [{"kind": "group", "name": "g"}]
    assert lanes.waited == 0


# -- deleting ----------------------------------------------------------------------------------


class LanesOfOneAction:
    def __init__(self) -> None:
        self.forgotten: list[Any] = []

    def forget(self, question: Question[Any]) -> None:
        self.forgotten.append(question)


def test_a_deletion_that_fails_midway_says_so() -> None:
    """The first master has done it, the second refuses."""
    places = {
        name: {"cluster": "C", "brokerName": name, "brokerAddrs": {"0": address}}
        for name, address in (("b", B), ("c", C))
    }
    info = {"brokerAddrTable": places, "clusterAddrTable": {"C": ["b", "c"]}}
    peers = Peers(
        {
            ("ns:1", Code.GET_BROKER_CLUSTER_INFO): info,
            (B, Code.DELETE_SUBSCRIPTIONGROUP): b"",
            (C, Code.DELETE_SUBSCRIPTIONGROUP): (16, "no permission"),
        }
    )
    lanes = LanesOfOneAction()
    who = peer_reader(peers, seen("b"), seen("c"), lanes=lanes)
    (delete,) = [action for action in group_changes.ACTIONS if action.name == "deleteGroup"]
    assert delete.is_destructive
    with pytest.raises(ConsoleError, match=r"no permission.*is done; delete it again"):
        delete.run(who, Query({"group": "g", "cluster": "C", "removeOffset": "true"}))
    assert [peers.asked[-2][0], peers.asked[-1][0]] == [B, C]
    assert peers.asked[-1][2].remove_offset is True
    assert lanes.forgotten == [GROUPS_OF]


def test_a_plan_names_few_of_many_members() -> None:
    members = [Connection(client_id=f"{HOSTILE}{n}", client_addr="a:1") for n in range(5_000)]
    said = group_changes._online(ConsumerConnection(connection_set=members))
    assert said.startswith("5000 online: ")
    assert "and 4990 more" in said
    assert len(said) < 11 * len(HOSTILE) + 300
    assert (
        group_changes._online(ConsumerConnection())
        == group_changes._online(None)
        == "Nobody is online."
    )
