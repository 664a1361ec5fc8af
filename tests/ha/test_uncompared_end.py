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


@pytest.fixture
def end(tmp_path: Path) -> UncomparedEnd:
    return UncomparedEnd(tmp_path / "uncompared.json")


def test_the_lowest_end_is_asked_about_until_it_is_known_to_be_common(end: UncomparedEnd) -> None:
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
def test_what_the_master_has_deleted_meanwhile_cannot_be_asked_about(
    end: UncomparedEnd, verdict: Verdict
) -> None:
    end.note(BLIND, 100, 100)
    assert end.note(found(verdict), 100, 300)
    assert end.question(300) == 300
    assert not end.note(found(verdict), 300, 300)


def test_the_place_outlives_the_process_until_it_was_compared(tmp_path: Path) -> None:
    path = tmp_path / "uncompared.json"
    UncomparedEnd(path).note(BLIND, 100, 100)
    assert path.exists()
    again = UncomparedEnd(path)
    assert again.question(300) == 100
    assert not again.note(found(Verdict.DIVERGED), 100, 300)
    assert UncomparedEnd(path).question(300) == 100
    assert UncomparedEnd(path).note(COMPARED, 100, 300)
    assert not path.exists()
    assert UncomparedEnd(path).question(300) == 300


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"phyOffset": "7"}', '{"phyOffset": -1}'])
def test_a_file_that_says_nothing_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "uncompared.json"
    path.write_text(text)
    assert UncomparedEnd(path).question(300) == 300
    assert f"{path}: " in caplog.text


def test_what_cannot_be_written_is_told_and_kept_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = UncomparedEnd(tmp_path / "nowhere" / "uncompared.json")
    end.note(BLIND, 100, 100)
    assert "cannot be written: No such file or directory" in caplog.text
    assert end.question(300) == 100


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


def test_it_is_found_after_a_restart(blind: tuple[SlaveWorld, ScriptedLink]) -> None:
    world, _link = blind
    world.say(Verdict.DIVERGED, master_max=1_000, common_offset=50)
    assert world.client.shutdown(2_000)
    world.inspected.clear()
    world.restart()
    world.wait_state(HAClientState.REFUSED)
    assert {asked for asked, _low in world.inspected} == {100}


def test_a_log_that_is_common_there_is_compared_at_its_end_and_followed(
    blind: tuple[SlaveWorld, ScriptedLink], master: ScriptedMaster
) -> None:
    world, link = blind
    world.say(Verdict.GO, master_max=1_000)
    link.close()
    wait_until(lambda: len(world.inspected) == 2)
    assert [asked for asked, _low in world.inspected] == [100, 200]
    assert master.accept().reports_until(200)
