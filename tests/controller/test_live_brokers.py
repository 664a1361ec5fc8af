"""Who is alive, against a model that keeps every heartbeat and looks through all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.broker_holders import BrokerHolders
from controller.controller_service import GroupSeen
from controller.election import LogReport
from controller.group_state import GroupState, Replica
from controller.live_brokers import Heartbeat, LiveBrokers

_HEARD = st.tuples(
    st.sampled_from("ab"), st.integers(1, 2), st.integers(1, 3), st.sampled_from([1, 5, 99])
)
_STEPS = st.lists(
    st.one_of(_HEARD, st.tuples(st.just("closed"), st.integers(1, 3)), st.just(("silent",))),
    max_size=30,
)


@given(_STEPS)
def test_the_newest_heartbeat_of_each_counts(steps: list[tuple[object, ...]]) -> None:
    live = LiveBrokers()
    heard: dict[tuple[str, int], tuple[Heartbeat, int]] = {}
    """By broker: the last one, and until when it counts."""
    for now_ms, step in enumerate(steps):
        match step:
            case ("closed", int(channel)):
                gone = {key: one for key, (one, _) in heard.items() if one.channel == channel}
                # Whose time is over may be forgotten already, or not.
                expected = {key for key in gone if now_ms < heard[key][1]}
                told = {(one.broker_name, one.broker_id) for one in live.closed(channel)}
                assert expected <= told <= gone.keys()
                for key in gone:
                    del heard[key]
            case ("silent",):
                live.forget_silent(now_ms)
            case (str(name), int(broker_id), int(channel), int(timeout)):
                beat = Heartbeat(name, broker_id, f"h:{now_ms}", channel, timeout, LogReport(1, 0))
                live.heard(beat, now_ms)
                heard[name, broker_id] = beat, now_ms + timeout
        for name in "ab":
            expected_addresses = {
                key[1]: one.address
                for key, (one, until) in heard.items()
                if key[0] == name and now_ms < until
            }
            assert live.addresses(name, now_ms) == expected_addresses
            assert live.alive(name, now_ms).keys() == expected_addresses.keys()
    live.forget_silent(1_000)
    assert not live._brokers
    assert not live._over, "nothing is kept of whom nobody hears any more"


def _seen(*ids: int, alive: tuple[int, ...] = (), presumed: bool = False) -> GroupSeen:
    replicas = {number: Replica(f"h:{number}", "x") for number in ids}
    return GroupSeen(GroupState("C", "b", replicas, 9), frozenset(alive), presumed)


def test_who_holds_an_id() -> None:
    holders = BrokerHolders()
    holders.note("b", 1, "here")
    holders.note("b", 2, "here")
    holders.note("other", 7, "here")
    assert holders.is_holder("b", 1, "here")
    assert not holders.is_holder("b", 1, "there")
    assert holders.is_taken(_seen(1, alive=(1,)), 1, "there")
    assert not holders.is_taken(_seen(1, alive=(1,)), 1, "here")
    assert not holders.is_taken(_seen(1), 1, "there"), "it is dead"
    assert holders.is_taken(_seen(1, presumed=True), 1, "there"), "nobody knows"
    assert holders.is_unclaimed(_seen(3, presumed=True), 3)
    assert not holders.is_unclaimed(_seen(3), 3)
    assert not holders.is_unclaimed(_seen(1, presumed=True), 1)
    holders.forget_but(_seen(2))
    assert not holders.is_holder("b", 1, "here"), "cleaned away"
    assert holders.is_holder("b", 2, "here")
    assert holders.is_holder("other", 7, "here")
