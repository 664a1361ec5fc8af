"""The second look at the master of an open link: when it is due, and what follows from it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.async_call import AsyncCall
from ha.ha_client_info import HAClientState
from ha.inspection import Inspection, Verdict
from ha.renewed_inspection import RenewedInspection
from store.errors import StoreError
from tests.ha.slave_world import SlaveWorld, connect
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.scripted_master import ScriptedLink, ScriptedMaster


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with ScriptedMaster() as master:
        yield master


COMPARED = Inspection(verdict=Verdict.GO, master_min=0, master_max=1_000)
BLIND = Inspection(verdict=Verdict.GO, text="it was not compared")
INTERVAL_MS = 10_000


class Desk:
    """One link's looks, with the clock and the answers in the test's hands."""

    def __init__(self, first: Inspection, position: int = 100) -> None:
        self.clock = ManualClock()
        self.asked = 0
        self.answer: Inspection | StoreError = COMPARED
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.refuses_threads = False
        self.renewed = RenewedInspection(first, position, INTERVAL_MS, self.clock, self._ask)

    def _ask(self) -> AsyncCall[Inspection]:
        self.asked += 1
        if self.refuses_threads:
            raise StoreError("no thread")
        return AsyncCall(self._inspect, lambda: None)

    def _inspect(self) -> Inspection:
        self.may_answer.wait(10)
        if isinstance(self.answer, StoreError):
            raise self.answer
        return self.answer

    def look(self, position: int = 100) -> Inspection | None:
        """Ask after an interval, and what was answered."""
        self.clock.advance(INTERVAL_MS)
        found = self.renewed.step(position)
        if found is not None:
            return found
        wait_until(lambda: self.renewed.has_result)
        return self.renewed.step(position)


def test_nothing_is_asked_before_the_interval_is_over() -> None:
    desk = Desk(COMPARED)
    assert desk.renewed.wait_ms() == INTERVAL_MS
    desk.clock.advance(INTERVAL_MS - 1)
    assert desk.renewed.step(100) is None
    assert (desk.asked, desk.renewed.wait_ms()) == (0, 1)
    assert desk.look() is COMPARED
    assert (desk.asked, desk.renewed.wait_ms()) == (1, INTERVAL_MS)


def test_a_log_that_grows_is_not_looked_at_again() -> None:
    desk = Desk(COMPARED)
    for position in (200, 300, 400):
        desk.clock.advance(INTERVAL_MS)
        assert desk.renewed.step(position) is None
    assert desk.asked == 0
    assert desk.look(400) is COMPARED


def test_a_blind_go_is_looked_at_though_the_log_grows() -> None:
    desk = Desk(BLIND)
    assert desk.look(200) is COMPARED
    desk.clock.advance(INTERVAL_MS)
    assert desk.renewed.step(300) is None
    assert desk.asked == 1


def test_an_answer_is_waited_for_without_asking_again() -> None:
    desk = Desk(COMPARED)
    desk.may_answer.clear()
    desk.clock.advance(INTERVAL_MS)
    for _ in range(3):
        assert desk.renewed.step(100) is None
        desk.clock.advance(INTERVAL_MS)
    assert (desk.asked, desk.renewed.wait_ms()) == (1, INTERVAL_MS)
    assert desk.renewed.has_moved(101)
    assert not desk.renewed.has_moved(100)
    desk.may_answer.set()


def test_who_cannot_be_asked_is_asked_again() -> None:
    desk = Desk(COMPARED)
    desk.answer = StoreError("remoting is away")
    assert desk.look() == Inspection(verdict=Verdict.WAIT, text="remoting is away")
    desk.refuses_threads = True
    assert desk.look(200) == Inspection(verdict=Verdict.WAIT, text="no thread")
    desk.refuses_threads = False
    desk.answer = COMPARED
    assert desk.look(300) is COMPARED
    assert desk.asked == 3


# -- within HAClient ---------------------------------------------------------------------------


class Linked:
    """A client whose link is open at offset 0, and which looks every 60 ms."""

    def __init__(self, tmp_path: Path, master: ScriptedMaster, first: Inspection) -> None:
        self.world = SlaveWorld(
            tmp_path, master, ha_send_heartbeat_interval=30, ha_reconnect_interval=60_000
        )
        self.say(first)
        self.link: ScriptedLink = connect(self.world, master)
        self.link.frame(0, b"x" * 900)
        self.link.reports_until(900)

    def say(self, found: Inspection) -> None:
        self.world.say(
            found.verdict,
            text=found.text,
            master_min=found.master_min,
            master_max=found.master_max,
            common_offset=found.common_offset,
            start_offset=found.start_offset,
        )

    def receive_more(self) -> None:
        end = self.world.end
        self.link.frame(end, b"more")
        wait_until(lambda: self.world.end == end + 4)

    def wait_looks(self, count: int) -> None:
        before = len(self.world.inspected)
        wait_until(lambda: len(self.world.inspected) >= before + count)


@pytest.mark.parametrize(
    ("found", "reason", "text"),
    [
        (
            Inspection(verdict=Verdict.BELOW_MIN, master_min=8_192, master_max=9_000),
            "behind_master_min",
            "our log ends at 900, the master's starts at 8192",
        ),
        (
            Inspection(verdict=Verdict.START_AT, start_offset=8_192, master_max=9_000),
            "behind_master_min",
            "our log ends at 900, the master's starts at 8192",
        ),
        (
            Inspection(verdict=Verdict.AHEAD, master_min=0, master_max=700, common_offset=600),
            "ahead",
            "our log ends at 900, the master's at 700",
        ),
        (
            Inspection(verdict=Verdict.DIVERGED, master_min=0, master_max=950, common_offset=600),
            "diverged",
            "record ends at 600",
        ),
    ],
)
def test_a_link_ends_when_the_logs_do_not_belong_together_any_more(
    tmp_path: Path, master: ScriptedMaster, found: Inspection, reason: str, text: str
) -> None:
    linked = Linked(tmp_path, master, COMPARED)
    linked.say(found)
    linked.link.wait_closed()
    linked.world.wait_state(HAClientState.RESTING)
    assert linked.world.refusals() == {reason: 1}
    assert text in linked.world.error_text
    linked.world.stop()


def test_the_round_after_acts_on_it(tmp_path: Path, master: ScriptedMaster) -> None:
    linked = Linked(tmp_path, master, COMPARED)
    linked.say(Inspection(verdict=Verdict.BELOW_MIN, master_min=8_192, master_max=9_000))
    linked.world.wait_state(HAClientState.RESTING)
    linked.world.client.update_master_address("127.0.0.1:1")  # ends the rest
    wait_until(lambda: linked.world.resyncs)
    assert linked.world.resyncs[0][:2] == ("start_over", 8_192)
    linked.world.stop()


def test_a_blind_go_is_examined_while_bytes_come(tmp_path: Path, master: ScriptedMaster) -> None:
    linked = Linked(tmp_path, master, BLIND)
    linked.world.before_inspection = linked.receive_more
    linked.wait_looks(3)
    assert linked.world.info.state is HAClientState.TRANSFER
    linked.say(Inspection(verdict=Verdict.DIVERGED, master_max=5_000, common_offset=100))
    linked.link.wait_closed()
    wait_until(lambda: linked.world.refusals() == {"diverged": 1})
    linked.world.stop()


def test_a_healthy_link_says_nothing(
    tmp_path: Path, master: ScriptedMaster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    linked = Linked(tmp_path, master, COMPARED)
    lines = caplog.text.count("inspection of the master")
    for found in (COMPARED, Inspection(verdict=Verdict.START_AT, start_offset=0, master_max=9)):
        linked.say(found)
        linked.wait_looks(3)
    assert caplog.text.count("inspection of the master") == lines + 1  # the verdict changed once
    assert linked.world.inspected[-1] == (900, 0)
    linked.link.frame(900, b"more")
    linked.link.reports_until(904)
    assert linked.world.refusals() == {}
    linked.world.stop()


def test_nobody_to_ask_harms_no_link(tmp_path: Path, master: ScriptedMaster) -> None:
    linked = Linked(tmp_path, master, COMPARED)
    linked.world.inspection = StoreError("remoting is away")
    linked.wait_looks(2)
    wait_until(lambda: linked.world.info.last_inspection == "wait: remoting is away")
    linked.link.frame(900, b"more")
    linked.link.reports_until(904)
    linked.world.stop()


def test_a_slow_inspection_does_not_hold_the_transfer(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    linked = Linked(tmp_path, master, COMPARED)
    answered = threading.Event()
    linked.world.before_inspection = lambda: answered.wait(20)
    linked.wait_looks(1)
    linked.link.frame(900, b"more")
    linked.link.reports_until(904)
    assert linked.world.client.shutdown(1_000)
    answered.set()
    linked.world.stop()


def test_a_position_that_moved_meanwhile_is_not_below(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    """The bytes were on their way when the master deleted them."""
    linked = Linked(tmp_path, master, COMPARED)
    below = Inspection(verdict=Verdict.BELOW_MIN, master_min=901, master_max=9_000)
    linked.world.before_inspection = linked.receive_more
    linked.say(below)
    wait_until(lambda: (linked.world.info.last_inspection or "").startswith("below_min"))
    linked.wait_looks(2)
    assert linked.world.refusals() == {}
    assert linked.world.info.state is HAClientState.TRANSFER
    linked.world.stop()
