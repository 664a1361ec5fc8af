"""ha.repair_proof: on whose word a slave starts over or cuts its log off.

HAClient with masters that are played by hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ha.ha_client_info import HAClientState
from ha.handshake import MasterHandshake, OwnIdentity
from ha.inspection import Inspection, Verdict
from ha.master_hello import MasterHello
from ha.repair_proof import RepairProof
from ha.trusted_peers import TrustedPeers
from store.control_slots import APPEND_END, MAX_PHY_OFFSET
from tests.ha.slave_world import MASTER_ADDRESS, SlaveWorld, connect
from tests.support.deadline import wait_until
from tests.support.scripted_master import ScriptedMaster

SIZE = 4096
SECRET = b"the secret of the group"
OURS = {"verdict": Verdict.BELOW_MIN, "master_min": 5 * SIZE, "master_max": 9 * SIZE}


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[..., SlaveWorld]]:
    """A slave whose log has 900 bytes."""
    worlds: list[SlaveWorld] = []

    def new(master: ScriptedMaster, **settings: Any) -> SlaveWorld:
        if "secret" in settings:
            settings["ha_trusted_addresses"] = ""
        world = SlaveWorld(tmp_path, master, **{"ha_reconnect_interval": 60_000, **settings})
        world.counters[MAX_PHY_OFFSET] = world.counters[APPEND_END] = 900
        worlds.append(world)
        return world

    yield new
    for world in worlds:
        world.stop()


def shake_hands(master: ScriptedMaster, secret: bytes | None, low: int, address: str) -> None:
    """Be the master of the next link: its log begins at `low`."""
    own = OwnIdentity("b", 0, address, secret)
    link = master.accept()
    with contextlib.suppress(ConnectionError):
        link.shake_hands(MasterHandshake(own, lambda: (low, low + SIZE), must_prove=False))
        link.wait_closed()


def wait_refused(world: SlaveWorld) -> str:
    world.wait_state(HAClientState.REFUSED)
    wait_until(lambda: world.error_text != "")
    assert world.resyncs == []
    assert world.end == 900
    return world.error_text


@pytest.mark.parametrize("action", ["start_over", "truncate"])
def test_a_stranger_that_is_registered_changes_nothing(
    new_world: Callable[..., SlaveWorld], action: str
) -> None:
    with ScriptedMaster("127.0.0.9") as stranger:
        settings = {"ha_trusted_addresses": "127.0.0.1", "ha_truncate_diverged": True}
        world = new_world(stranger, **settings)
        facts = dict(OURS, master_address="127.0.0.9:10911")
        if action == "truncate":
            facts |= {"verdict": Verdict.DIVERGED, "common_offset": 100}
        world.say(**facts)
        world.start()
        text = wait_refused(world)
        assert "our log ends at 900" in text
        assert "haSharedSecretFile" in text
        assert world.refusals() == {"unknown_peer": 1}


def test_nor_does_one_that_does_not_know_the_secret(new_world: Callable[..., SlaveWorld]) -> None:
    with ScriptedMaster() as stranger:
        world = new_world(stranger, secret=SECRET)
        world.say(**OURS, ha_protocol=1)
        world.start()
        shake_hands(stranger, None, 5 * SIZE, MASTER_ADDRESS)
        assert "nothing is replicated" in wait_refused(world)
        assert world.refusals() == {"not_proved": 1}


def test_the_proved_masters_own_word_counts(new_world: Callable[..., SlaveWorld]) -> None:
    with ScriptedMaster() as master:
        world = new_world(master, secret=SECRET)
        world.say(**OURS, ha_protocol=1)
        world.start()
        shake_hands(master, SECRET, 3 * SIZE, MASTER_ADDRESS)
        wait_until(lambda: world.resyncs)
        assert world.resyncs[0][:2] == ("start_over", 3 * SIZE)
        assert world.refusals() == {"behind_master_min": 1}


@pytest.mark.parametrize(
    ("low", "address", "text"),
    [
        (0, MASTER_ADDRESS, "says that its log starts at 0, where ours continues"),
        (5 * SIZE, "10.0.0.1:10911", "the comparison was answered by 127.0.0.1:10911, but the "),
    ],
)
def test_a_proved_master_contradicts(
    new_world: Callable[..., SlaveWorld], low: int, address: str, text: str
) -> None:
    """The comparison was answered by somebody else, who is registered in its place."""
    with ScriptedMaster() as master:
        world = new_world(master, secret=SECRET)
        world.say(**OURS, ha_protocol=1)
        world.start()
        shake_hands(master, SECRET, low, address)
        assert text in wait_refused(world)


def test_an_empty_log_begins_where_the_proved_master_says(tmp_path: Path) -> None:
    with ScriptedMaster() as master:
        world = SlaveWorld(tmp_path, master, files=0, secret=SECRET)
        world.say(Verdict.START_AT, start_offset=7 * SIZE, master_max=9 * SIZE, ha_protocol=1)
        world.start()
        own = OwnIdentity("b", 0, MASTER_ADDRESS, SECRET)
        link = master.accept()
        link.shake_hands(MasterHandshake(own, lambda: (SIZE, 2 * SIZE), must_prove=True))
        assert link.read_report() == SIZE
        assert world.begun == [SIZE]
        world.stop()


def test_an_open_link_does_not_end_on_another_ones_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedMaster() as master:
        settings = {"ha_trusted_addresses": "127.0.0.1", "ha_send_heartbeat_interval": 20}
        world = SlaveWorld(tmp_path, master, **settings)
        link = connect(world, master)
        link.frame(0, b"x" * 500)
        facts = {"common_offset": 100, "master_min": 0, "master_max": 300}
        world.say(Verdict.DIVERGED, master_address="127.0.0.9:10911", **facts)
        wait_until(lambda: "keeping the link to" in caplog.text)
        link.frame(500, b"y")
        assert link.reports_until(501)
        world.say(Verdict.DIVERGED, master_address=MASTER_ADDRESS, **facts)
        link.wait_closed()
        world.stop()


def test_another_ones_word_is_no_comparison(tmp_path: Path) -> None:
    """A slave of a slave, or a stranger that is registered: the logs agreed with somebody else's,
    and what this peer sends would hide for ever that ours had parted from its."""
    with ScriptedMaster() as master:
        world = SlaveWorld(tmp_path, master, ha_trusted_addresses="127.0.0.1")
        world.say(Verdict.GO, master_max=9_000)
        link = connect(world, master)
        link.frame(0, b"x" * 500)
        assert link.reports_until(500)
        world.say(Verdict.GO, master_address="127.0.0.9:10911")
        link.close()
        link = master.accept()
        assert link.reports_until(500)
        link.frame(500, b"y" * 500)
        assert link.reports_until(1_000)
        link.close()
        link = master.accept()
        assert link.reports_until(1_000), "the same stranger, asked about 500"
        link.frame(1_000, b"z" * 500)
        assert link.reports_until(1_500)
        world.inspected.clear()
        link.close()
        assert master.accept().reports_until(1_500)
        assert [asked for asked, _low in world.inspected] == [500, 1_500], "not all for nothing"
        assert world.client.shutdown(2_000)
        world.inspected.clear()
        world.restart()
        link = master.accept()
        assert link.reports_until(1_500)
        assert [asked for asked, _low in world.inspected] == [500, 1_000, 1_500]
        world.inspected.clear()
        facts = {"common_offset": 100, "master_min": 0}
        world.say(Verdict.DIVERGED, master_address=MASTER_ADDRESS, **facts)
        link.close()
        world.wait_state(HAClientState.REFUSED)
        assert world.inspected[0][0] == 500
        world.stop()


def test_nor_while_the_link_is_open(tmp_path: Path) -> None:
    with ScriptedMaster() as master:
        world = SlaveWorld(
            tmp_path, master, ha_trusted_addresses="127.0.0.1", ha_send_heartbeat_interval=50
        )
        link = connect(world, master)
        link.frame(0, b"x" * 500)
        assert link.reports_until(500)
        link.close()
        link = master.accept()  # Blindly.
        assert link.reports_until(500)
        link.frame(500, b"y" * 500)
        assert link.reports_until(1_000)
        world.say(Verdict.GO, master_max=9_000, master_address="127.0.0.9:10911")
        world.inspected.clear()
        wait_until(lambda: len(world.inspected) >= 2)
        assert {asked for asked, _low in world.inspected} == {500}
        world.stop()


def found_at(master_address: str | None) -> Inspection:
    return Inspection(verdict=Verdict.BELOW_MIN, master_address=master_address)


@pytest.mark.parametrize(
    ("asked", "hello_address", "is_proved", "is_accepted"),
    [
        ("10.0.0.1:10911", "10.0.0.1:10911", True, True),
        ("10.0.0.1:10911", "10.0.0.1:20911", True, False),
        ("10.0.0.1:10911", None, True, False),
        ("10.0.0.1:10911", None, False, True),
        ("10.0.0.9:10911", None, False, False),
        ("10.0.0.9:10911", "10.0.0.1:10911", False, False),
        ("10.0.5.5:10911", None, False, True),
        (None, None, False, False),
    ],
)
def test_who_speaks_for_the_master_at_an_address(
    asked: str | None, hello_address: str | None, is_proved: bool, is_accepted: bool
) -> None:
    proof = RepairProof(None, TrustedPeers("10.0.5.0/24", allow_any=False))  # type: ignore[arg-type]
    hello = MasterHello(-1, -1, hello_address, is_proved)
    objection = proof.find_objection(found_at(asked), "10.0.0.1:10912", hello)
    assert (objection is None) is is_accepted
