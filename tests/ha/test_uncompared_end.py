"""Where a log went on without a comparison is what is compared next, and not its later end."""

from __future__ import annotations

import json
import time
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


def test_every_place_is_asked_about_from_the_lowest_up(end: UncomparedEnd) -> None:
    """Between 100 and 200 this broker may have been a master: each place counts."""
    assert end.question(100, 0) == 100
    assert not end.note(BLIND, 100, 100, goes_on=True)
    assert not end.note(BLIND, 100, 150, goes_on=False)
    assert not end.note(BLIND, 100, 200, goes_on=True)
    assert not end.note(found(Verdict.WAIT), 100, 250, goes_on=True)
    assert not end.note(found(Verdict.DIVERGED), 100, 250, goes_on=True)
    assert end.question(300, 0) == 100
    assert end.note(COMPARED, 100, 300, goes_on=True)
    assert end.question(300, 0) == 200
    assert end.note(COMPARED, 200, 300, goes_on=True)
    assert end.question(300, 0) == 300
    assert not end.note(COMPARED, 300, 300, goes_on=True)


def test_where_nothing_of_ours_is_left_nothing_is_asked_about(end: UncomparedEnd) -> None:
    """A log that was empty then, or whose files were deleted since: asked about such a place, an
    inspection took the slave for empty, which may follow blindly."""
    for place in (0, 100, 200):
        end.note(BLIND, place, place, goes_on=True)
    assert end.question(300, 0) == 100
    assert end.question(300, 100) == 200
    assert end.question(300, 200) == 300
    assert not end.note(COMPARED, 300, 300, goes_on=True)
    assert end.question(300, 0) == 300


def test_places_beyond_an_end_that_was_cut_off_are_forgotten(end: UncomparedEnd) -> None:
    for place in (100, 200, 300):
        end.note(BLIND, 100, place, goes_on=True)
    end.note(BLIND, 100, 250, goes_on=True)
    for place in (100, 200):
        assert end.question(400, 0) == place
        assert end.note(COMPARED, place, 400, goes_on=True)
    assert end.question(400, 0) == 250
    assert not end.note(COMPARED, 250, 250, goes_on=True)
    assert end.question(400, 0) == 400


@pytest.mark.parametrize("verdict", [Verdict.BELOW_MIN, Verdict.START_AT])
def test_what_the_master_has_deleted_meanwhile_cannot_be_asked_about(
    end: UncomparedEnd, verdict: Verdict
) -> None:
    end.note(BLIND, 100, 100, goes_on=True)
    assert end.note(found(verdict), 100, 300, goes_on=True)
    assert end.question(300, 0) == 300
    assert not end.note(found(verdict), 300, 300, goes_on=True)


@pytest.mark.parametrize("verdict", [Verdict.GO, Verdict.BELOW_MIN, Verdict.START_AT])
def test_an_end_that_is_passed_by_now_is_no_place(end: UncomparedEnd, verdict: Verdict) -> None:
    """While messages come that is so with every answer."""
    assert not end.note(found(verdict), 100, 300, goes_on=False)
    end.note(BLIND, 200, 200, goes_on=True)
    assert end.note(COMPARED, 200, 300, goes_on=False)
    assert not end.note(found(verdict), 300, 400, goes_on=False)


def test_the_places_outlive_the_process_until_they_were_compared(tmp_path: Path) -> None:
    path = tmp_path / "uncompared.json"
    UncomparedEnd(path).note(BLIND, 100, 100, goes_on=True)
    UncomparedEnd(path).note(BLIND, 100, 200, goes_on=True)
    again = UncomparedEnd(path)
    assert again.question(300, 0) == 100
    assert not again.note(found(Verdict.DIVERGED), 100, 300, goes_on=True)
    assert UncomparedEnd(path).question(300, 0) == 100
    for asked in (100, 200):
        assert again.note(COMPARED, asked, 300, goes_on=True)
    assert not again.note(COMPARED, 300, 300, goes_on=True)
    assert UncomparedEnd(path).question(300, 0) == 100, "by whom is not known yet"
    again.settle(300, is_masters_word=True)
    assert not path.exists()
    assert UncomparedEnd(path).question(300, 0) == 300


def test_what_another_one_compared_stays_to_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "uncompared.json"
    end = UncomparedEnd(path)
    end.note(BLIND, 100, 100, goes_on=True)
    assert end.note(COMPARED, 100, 300, goes_on=True)
    end.begin()
    assert end.question(300, 0) == 100, "no link came of it"
    assert end.note(COMPARED, 100, 300, goes_on=True)
    end.note(BLIND, 300, 300, goes_on=True)
    assert json.loads(path.read_text())["phyOffsets"] == [100, 300]
    end.settle(400, is_masters_word=False)
    assert json.loads(path.read_text())["phyOffsets"] == [100, 300, 400]


def test_a_file_of_an_older_version_has_one_place(tmp_path: Path) -> None:
    path = tmp_path / "uncompared.json"
    path.write_text('{"phyOffset": 100}')
    assert UncomparedEnd(path).question(300, 0) == 100


def test_more_places_than_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "uncompared.json"
    path.write_text(json.dumps({"phyOffsets": [*range(1_000)]}))
    end = UncomparedEnd(path)
    end.note(BLIND, 0, 5_000, goes_on=True)
    assert "more than 1000 places" in caplog.text
    assert json.loads(path.read_text())["phyOffsets"] == [*range(999), 5_000]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"phyOffset": "7"}', '{"phyOffset": -1}', '{"phyOffsets": 7}']
)
def test_a_file_that_says_nothing_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "uncompared.json"
    path.write_text(text)
    assert UncomparedEnd(path).question(300, 0) == 300
    assert f"{path}: " in caplog.text


def test_what_cannot_be_written_is_told_and_kept_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = UncomparedEnd(tmp_path / "nowhere" / "uncompared.json")
    end.note(BLIND, 100, 100, goes_on=True)
    assert "cannot be written: No such file or directory" in caplog.text
    assert end.question(300, 0) == 100


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


def test_a_log_that_parted_between_two_blind_links_is_found(
    blind: tuple[SlaveWorld, ScriptedLink], master: ScriptedMaster
) -> None:
    """mqchaos, seed 56002: common at 100, while this broker was a master from there to 200."""
    world, link = blind
    link.close()
    link = master.accept()
    link.frame(200, b"c" * 100)
    assert link.reports_until(300)
    world.inspected.clear()
    world.say(Verdict.GO, master_max=1_000)
    link.close()
    wait_until(lambda: len(world.inspected) == 3)
    assert [asked for asked, _low in world.inspected] == [100, 200, 300]


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


def test_an_open_link_that_brings_messages_is_not_inspected_without_end(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    """Whenever somebody has answered, our log has already gone on."""
    world = SlaveWorld(tmp_path, master, ha_send_heartbeat_interval=200)
    world.start()
    link = master.accept()

    def grow() -> None:
        at = world.end
        link.frame(at, b"a" * 10)
        wait_until(lambda: world.end > at)

    world.before_inspection = grow
    world.say(Verdict.GO, master_max=1_000)
    wait_until(lambda: len(world.inspected) > 1)
    time.sleep(0.3)
    assert len(world.inspected) <= 3
    world.stop()
