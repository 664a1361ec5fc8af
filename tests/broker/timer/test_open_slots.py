"""Timers at their millisecond, by a clock moved by hand: what is delivered of open slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.timer import open_slot
from broker.timer.unpublished_deliveries import UnpublishedDeliveries
from remoting.response_code import ResponseCode
from store.timer.timer_metrics import load_timer_metrics
from store.timer.timer_slots import TIMER_STOP_ENQUEUE
from tests.support.manual_clock import ManualClock
from tests.support.timer_delivery import Delivered, TimerDelivery
from tests.support.timer_life import START_MS, TimerLife

SLOT_MS = START_MS + 2_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TimerDelivery]:
    world = TimerDelivery(tmp_path / "store")
    yield world
    world.close()


def test_at_the_millisecond_in_the_order_of_the_times(world: TimerDelivery) -> None:
    asked = {"c": 700, "a": 1, "b": 20, "e": 999, "f": 1_000, "d": 700, "g": 1_001}
    for key, ms in asked.items():
        world.put(key, SLOT_MS + ms)
    world.pass_ms(2_000, 50)
    assert world.keys() == []
    world.pass_ms(1_100)
    assert world.delivered() == [
        Delivered(key, SLOT_MS + asked[key]) for key in ("a", "b", "c", "d", "e", "f", "g")
    ]
    world.pass_ms(3_000, 50)
    assert world.keys() == list("abcdefg")
    assert world.service.read_time_ms == SLOT_MS + 4_000


def test_looks_are_soon_only_while_something_waits(world: TimerDelivery) -> None:
    world.step()
    assert world.turn() == 1_000, "there never was one"
    world.put("a", SLOT_MS + 12)
    assert world.turn() <= 100, "the log has one, that the store has not entered yet"
    world.pass_ms(2_001, 29)
    world.step()
    assert 5 <= world.turn() <= 20
    world.pass_ms(2_000, 20)
    assert world.keys() == ["a"]
    world.step()
    assert world.turn() > 20


def test_a_message_that_comes_during_its_slot(world: TimerDelivery) -> None:
    world.put("old", SLOT_MS + 900)
    world.pass_ms(2_400, 20)
    world.put("new", SLOT_MS + 500)
    world.put("late", SLOT_MS - 1_500)
    world.pass_ms(600)
    assert world.delivered() == [
        Delivered("late", SLOT_MS + 401),
        Delivered("new", SLOT_MS + 500),
        Delivered("old", SLOT_MS + 900),
    ]


@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_recall_that_is_entered_after_its_slot_has_begun(
    world: TimerDelivery, where: str
) -> None:
    """It is put before; until it is entered, nothing of the slot goes out."""
    if where == "before":
        world.recall("gone", SLOT_MS + 1)
    for key in ("gone", "stays"):
        world.put(key, SLOT_MS + 5)
    world.pass_ms(2_000, 20)
    world.recall("gone", SLOT_MS + 1)
    for _ in range(40):
        world.clock.advance(1)
        world.turn()
    assert world.keys() == []
    world.pass_ms(1)
    assert world.delivered() == [Delivered("stays", SLOT_MS + 41)]
    world.pass_ms(2_000, 20)
    assert world.keys() == ["stays"]


def test_a_recall_within_the_slot(world: TimerDelivery) -> None:
    """No recall of ours comes so late; a client's own record may."""
    for key, ms in {"a": 100, "b": 300}.items():
        world.put(key, SLOT_MS + ms)
    world.pass_ms(2_200, 20)
    world.recall("a", SLOT_MS + 250)
    world.recall("b", SLOT_MS + 250)
    world.pass_ms(2_000, 20)
    assert world.keys() == ["a"]


def test_a_recall_of_another_topic(world: TimerDelivery) -> None:
    """Whoever may send to some topic took messages out of every other."""
    for key in "ab":
        world.put(key, SLOT_MS + 300)
    world.put("", SLOT_MS + 1, more="\x02TIMER_DEL_UNIQKEY\x01T+a", topic="Mine")
    world.recall("b", SLOT_MS + 1)
    world.pass_ms(4_000, 20)
    assert world.keys() == ["a"]


def test_numbers_of_4301_digits(tmp_path: Path) -> None:
    """A forged one in the log ended the process when the message rolled, and at every start; one in
    TIMER_OUT_MS ended process store. The others are delivered."""
    world = TimerDelivery(tmp_path / "store", timer_roll_window_slot=5)
    digits = "9" * 4_301
    world.life.put(SLOT_MS, more=f"\x02TIMER_OUT_MS\x01{digits}\x02UNIQ_KEY\x01never")
    world.put("rolls", SLOT_MS + 12_000, more=f"\x02TIMER_ROLL_TIMES\x01{digits}")
    world.put("plain", SLOT_MS + 1_500)
    world.pass_ms(16_000, 50)
    assert sorted(world.keys()) == ["plain", "rolls"]
    world.close()


@pytest.mark.parametrize("window", [1_000, 5])
def test_properties_that_leave_no_room_for_the_marks(tmp_path: Path, window: int) -> None:
    """Such a message was answered SEND_OK, and dropped when it was due: "can never be stored"."""
    world = TimerDelivery(
        tmp_path / "store", timer_roll_window_slot=window, mapped_file_size_commit_log=1 << 20
    )
    for room in (0, 12, 40, 61, 62):
        asked_ms = SLOT_MS + 11_001 + room
        taken = len(
            f"TIMER_OUT_MS\x01{asked_ms}\x02REAL_TOPIC\x01T\x02REAL_QID\x010"
            f"\x02TIMER_DELIVER_MS\x01{asked_ms}\x02UNIQ_KEY\x01{room:02d}\x02A\x01"
        )
        world.put(f"{room:02d}", asked_ms, more=f"\x02A\x01{'a' * (32_767 - taken - room)}")
    world.pass_ms(14_000, 50)
    assert world.keys() == ["00", "12", "40", "61", "62"]
    world.close()


def test_what_waits_until_its_slot_is_over(world: TimerDelivery) -> None:
    """System topics keep their order; a delay of a rolled message, and times that contradict."""
    asked_ms = SLOT_MS + 10
    world.put("revive", asked_ms, topic="rmq_sys_REVIVE_LOG_C")
    world.put("rolled delay", asked_ms, more="\x02TIMER_ROLL_TIMES\x011\x02TIMER_DELAY_MS\x0110")
    world.put("elsewhen", asked_ms, more=f"\x02TIMER_DELIVER_MS\x01{asked_ms + 5_000}")
    world.put("plain", asked_ms)
    world.put("rolled", asked_ms, more="\x02TIMER_ROLL_TIMES\x011")
    world.pass_ms(2_990, 10)
    assert world.keys() == ["plain", "rolled"]
    world.pass_ms(100)
    assert world.keys() == ["plain", "rolled", "revive", "rolled delay", "elsewhen"]


def test_a_topic_that_is_being_deleted_takes_none(
    world: TimerDelivery, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of an open slot nor of one that is over; they come when the queues are gone."""
    world.put("a", SLOT_MS + 500)
    world.put("b", SLOT_MS + 600, topic="U")
    world.queue.block_topic("T", ResponseCode.TOPIC_NOT_EXIST, "being deleted")
    world.pass_ms(5_000, 50)
    assert world.keys().count("a") == 0
    assert 1 <= len(caplog.messages) <= 50, "it does not go round and round"
    world.queue.unblock_topic("T")
    world.pass_ms(1_000, 50)
    assert sorted(world.keys()) == ["a", "b"]


def test_a_delay_counts_from_the_record(world: TimerDelivery) -> None:
    world.pass_ms(20)
    stored_ms = world.clock.now_ms()
    world.life.put(SLOT_MS, more="\x02UNIQ_KEY\x01d\x02TIMER_DELAY_MS\x012300")
    world.pass_ms(2_270, 10)
    world.pass_ms(50)
    assert world.delivered() == [Delivered("d", stored_ms + 2_300)]


def test_a_stopped_delivery(world: TimerDelivery) -> None:
    world.put("a", SLOT_MS + 10)
    world.put("b", SLOT_MS + 20)
    world.pass_ms(2_010, 5)
    world.service.use(stopped=True)
    world.pass_ms(100, 5)
    assert world.keys() == ["a"]
    world.service.use(stopped=False)
    world.pass_ms(5, 5)
    assert world.keys() == ["a", "b"]


def test_a_stop_ends_the_delivery_at_its_slot(world: TimerDelivery) -> None:
    """There is no thread that goes on, and nobody waits for one."""
    world.put("a", SLOT_MS + 10)
    world.put("b", SLOT_MS + 1_500)
    world.pass_ms(2_010, 5)
    world.service.stop()
    world.service.stop()
    world.pass_ms(10_000, 5)
    assert world.keys() == ["a"]
    assert not world.service.busy
    world.service.finish()
    world.restart()
    world.pass_ms(3_000, 10)
    assert world.keys() == ["a", "b"]


def test_while_nothing_is_entered_slots_go_out_when_they_are_over(world: TimerDelivery) -> None:
    world.put("a", SLOT_MS + 10)
    world.life.run()
    world.life.counters[TIMER_STOP_ENQUEUE] = 1
    world.put("b", SLOT_MS + 20)
    world.pass_ms(2_900, 20)
    assert world.keys() == []
    world.pass_ms(200, 20)
    assert world.keys() == ["a"]
    world.life.counters[TIMER_STOP_ENQUEUE] = 0
    world.pass_ms(20)
    assert world.keys() == ["a", "b"]


def test_kills_repeat_nothing(world: TimerDelivery) -> None:
    for number in range(20):
        world.put(str(number), SLOT_MS + 100 * (number + 1))
    world.pass_ms(2_500, 20)
    world.service = world.new_service()
    world.pass_ms(200, 20)
    world.life.timers = world.life.new_timers()
    world.pass_ms(200, 20)
    world.restart()
    world.pass_ms(2_000, 20)
    assert world.keys() == [str(number) for number in range(20)]
    assert all(each.stored_ms >= SLOT_MS + 100 * (int(each.key) + 1) for each in world.delivered())


def test_a_slot_that_was_over_while_nobody_lived(world: TimerDelivery) -> None:
    for key, ms in {"a": 100, "b": 900}.items():
        world.put(key, SLOT_MS + ms)
    world.pass_ms(2_200, 20)
    world.clock.advance(5_000)
    world.restart()
    world.pass_ms(100, 20)
    assert world.keys() == ["a", "b"]


def test_a_kill_between_the_log_and_the_file(world: TimerDelivery) -> None:
    for key in "ab":
        world.put(key, SLOT_MS + 100)
    world.pass_ms(2_099, 2_099)
    world.clock.advance(1)
    world.turn(ends=False)
    assert world.keys() == ["a", "b"]
    world.service = world.new_service()
    world.pass_ms(2_000, 20)
    assert world.keys() == ["a", "b"]


def test_a_kill_between_the_log_and_the_file_when_the_slot_is_over(world: TimerDelivery) -> None:
    for key in "ab":
        world.put(key, SLOT_MS + 100)
    world.pass_ms(2_000, 2_000)
    world.clock.advance(5_000)
    world.life.run()
    for _ in range(3):
        world.turn(ends=False)
    assert world.keys() == ["a", "b"]
    world.service = world.new_service()
    world.pass_ms(2_000, 20)
    assert world.keys() == ["a", "b"]


@pytest.mark.parametrize("lives", [1, 2])
def test_a_kill_before_the_log_has_it_and_a_log_that_grows_before_timers_begin(
    world: TimerDelivery, lives: int
) -> None:
    """As with enableRemoteEscape, where sends are taken before the handover; of two lives the first
    ends before its timers begin."""
    for key in "ab":
        world.put(key, SLOT_MS + 100)
    world.pass_ms(2_099, 2_099)
    world.clock.advance(1)
    end = world.life.log.position
    world.life.log.now_ms = world.clock.now_ms()
    world.service.deliver_due()
    assert world.life.log.position > end, "noted, and not published"
    world.life.log._pending.clear()
    for _ in range(lives):
        world.life.kill()
        world.life = TimerLife(world.root, clock=world.clock)
        assert world.life.log.position >= end
        UnpublishedDeliveries(world.life.config.timer_unpublished_path, 1000).settle(
            world.life.log.position
        )
        for number in range(10):
            world.put(f"later-{number}", SLOT_MS + 3_600_000)
    world.service = world.new_service()
    world.life.run()
    world.pass_ms(2_000, 20)
    assert world.keys() == ["a", "b"]


def test_an_orderly_stop_is_believed_by_another_boot(
    world: TimerDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, ms in {"a": 100, "b": 900}.items():
        world.put(key, SLOT_MS + ms)
    world.pass_ms(2_200, 20)
    world.service.stop()
    world.service.finish()
    monkeypatch.setattr("store.unflushed_map.boot_id", lambda: "another")
    world.service = world.new_service()
    world.pass_ms(2_000, 20)
    assert world.keys() == ["a", "b"]


@pytest.mark.parametrize("is_believed", [True, False])
def test_an_orderly_stop_marks_what_java_would_repeat(
    world: TimerDelivery, is_believed: bool
) -> None:
    """We go by our own file: where that is gone, rather twice than never."""
    for key, ms in {"a": 100, "b": 200, "c": 800, "gone": 850}.items():
        world.put(key, SLOT_MS + ms)
    world.recall("gone", SLOT_MS + 850)
    world.pass_ms(2_400, 10)
    assert world.keys() == ["a", "b"]
    world.service.stop()
    world.service.finish()
    world.life.timers.finish()
    config = world.life.config
    assert [unit.magic for unit in world.life.waiting()[SLOT_MS]] == [5, 5, 1, 1, 5]
    assert load_timer_metrics(config.timer_metrics_path).topics["T"].count == 1
    if not is_believed:
        config.timer_early_path.unlink()
    world.restart()
    world.pass_ms(2_000, 10)
    assert sorted(world.keys()) == (list("abc") if is_believed else list("aabbc"))
    assert world.life.timers._pending.metrics.topics["T"].count == 0


def test_a_killed_delivery_marks_nothing(world: TimerDelivery) -> None:
    """What it has delivered may not be on disk."""
    world.put("a", SLOT_MS + 100)
    world.put("b", SLOT_MS + 800)
    world.pass_ms(2_400, 10)
    world.life.timers.finish()
    assert [unit.magic for unit in world.life.waiting()[SLOT_MS]] == [1, 1]


def test_timer_files_are_built_anew(world: TimerDelivery) -> None:
    """Units have other positions then; their records have not."""
    world.put("before", SLOT_MS - 1_900)
    for number in range(20):
        world.put(str(number), SLOT_MS + 30 * (number + 1))
    world.pass_ms(2_300, 20)
    world.life.timers.finish()
    for path in world.life.config.timer_log_path.iterdir():
        path.unlink()
    world.life.timers = world.life.new_timers()
    world.pass_ms(2_000, 20)
    assert world.keys() == ["before", *map(str, range(20))]


def test_the_clock_is_set_back_within_a_slot(world: TimerDelivery) -> None:
    """What was delivered of the slot that is open then does not come again with its time."""
    for key, ms in {"a": 100, "b": 900}.items():
        world.put(key, SLOT_MS + ms)
    world.pass_ms(2_500, 20)
    assert world.keys() == ["a"]
    world.clock.jump_to(SLOT_MS - 20_000)
    world.pass_ms(200, 20)
    world.put("c", SLOT_MS - 18_500)
    world.pass_ms(20_000, 100)
    assert world.keys() == ["a", "c"]
    world.pass_ms(2_000, 20)
    assert world.keys() == ["a", "c", "b"]


def test_a_slot_with_more_than_are_delivered_early(
    world: TimerDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_slot, "CAPACITY", 5)
    for number in range(12):
        world.put(str(number), SLOT_MS + 10 * (number + 1))
    world.pass_ms(2_500, 20)
    assert len(world.keys()) == 5
    world.service = world.new_service()
    world.pass_ms(1_000, 20)
    assert Counter(world.keys()) == Counter(str(number) for number in range(12))


class BusyClock(ManualClock):
    """Each look at the monotonic clock takes half a ms."""

    def monotonic_ns(self) -> int:
        self._looks = getattr(self, "_looks", 0) + 1
        return super().monotonic_ns() + self._looks * 500_000


def test_a_crowd_shares_the_turns(tmp_path: Path) -> None:
    world = TimerDelivery(tmp_path / "store", clock=BusyClock(START_MS))
    crowd = 150
    for number in range(crowd):
        world.put(str(number), SLOT_MS + 10)
    world.put("next", SLOT_MS + 11)
    world.pass_ms(2_005, 401)
    world.clock.advance(10)
    turns = 0
    while world.turn() == 0:
        turns += 1
    assert turns > 1
    assert Counter(world.keys()) == Counter([*map(str, range(crowd)), "next"])
    world.close()
