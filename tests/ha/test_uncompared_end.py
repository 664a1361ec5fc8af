"""Where a log went on without a comparison is what is compared next, and not its later end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.ha_client_info import HAClientState
from ha.inspection import Inspection, Verdict
from ha.uncompared_end import UncomparedEnd
from tests.ha.slave_world import SlaveWorld
from tests.support.deadline import wait_until
from tests.support.scripted_master import ScriptedLink, ScriptedMaster

COMPARED = Inspection(verdict=Verdict.GO, master_min=0, master_max=1_000)
BLIND = Inspection(verdict=Verdict.GO, text="it was not compared")


def found(verdict: Verdict) -> Inspection:
    return Inspection(verdict=verdict, master_min=0, master_max=1_000)


def test_the_lowest_end_is_asked_about_until_it_is_known_to_be_common() -> None:
    end = UncomparedEnd()
    assert end.question(100) == 100
    assert not end.note(BLIND, 100, 100)
    assert not end.note(BLIND, 100, 200)
    assert not end.note(found(Verdict.WAIT), 100, 250)
    assert not end.note(found(Verdict.DIVERGED), 100, 250)
    assert end.question(300) == 100
    assert end.note(COMPARED, 100, 300)
    assert end.question(300) == 300
    assert not end.note(COMPARED, 300, 300)


@pytest.mark.parametrize("verdict", [Verdict.BELOW_MIN, Verdict.START_AT])
def test_what_the_master_has_deleted_meanwhile_cannot_be_asked_about(verdict: Verdict) -> None:
    end = UncomparedEnd()
    end.note(BLIND, 100, 100)
    assert end.note(found(verdict), 100, 300)
    assert end.question(300) == 300
    assert not end.note(found(verdict), 300, 300)


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with ScriptedMaster() as master:
        yield master


@pytest.fixture
def blind(tmp_path: Path, master: ScriptedMaster) -> Iterator[tuple[SlaveWorld, ScriptedLink]]:
    """A slave that follows a master blindly, from 100 on and to 200 now, and its link."""
    world = SlaveWorld(tmp_path, master, ha_reconnect_interval=200)
    world.say(Verdict.GO, master_max=1_000)
    world.start()
    link = master.accept()
    link.frame(0, b"a" * 100)
    assert link.reports_until(100)
    world.say(Verdict.GO, master_max=-1)
    link.close()
    link = master.accept()
    assert link.reports_until(100)
    link.frame(100, b"b" * 100)
    assert link.reports_until(200)
    world.inspected.clear()
    yield world, link
    world.stop()


def test_a_log_that_parted_before_a_blind_link_is_found(
    blind: tuple[SlaveWorld, ScriptedLink],
) -> None:
    """The last record is the master's: only at 100 is there a difference to be seen."""
    world, link = blind
    world.say(Verdict.DIVERGED, master_max=1_000, common_offset=50)
    link.close()
    world.wait_state(HAClientState.REFUSED)
    assert {asked for asked, _low in world.inspected} == {100}
    assert world.end == 200


def test_a_log_that_is_common_there_is_compared_at_its_end_and_followed(
    blind: tuple[SlaveWorld, ScriptedLink], master: ScriptedMaster
) -> None:
    world, link = blind
    world.say(Verdict.GO, master_max=1_000)
    link.close()
    wait_until(lambda: len(world.inspected) == 2)
    assert [asked for asked, _low in world.inspected] == [100, 200]
    assert master.accept().reports_until(200)
