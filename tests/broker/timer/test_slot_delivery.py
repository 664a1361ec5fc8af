"""broker.timer.slot_delivery, on a timer log that process `store` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.timer.delivered_properties import delivered_properties
from broker.timer.slot_delivery import SlotDelivery
from store.message import Message
from store.timer.timer_log import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, TimerLog, TimerUnit
from tests.broker.hot_path_world import properties_of

SLOT_MS = 1_795_391_992_000


class Slot:
    """Units at phy offsets 0, 1, … in the order of their coming."""

    def __init__(self, root: Path) -> None:
        self.log = TimerLog(root / "timerlog", 5_200)
        self.log.begin_at(0)
        self.last_pos = -1
        self.messages: dict[int, Message] = {}

    def add(self, properties: str, magic: int = MAGIC_DEFAULT) -> None:
        number = len(self.messages)
        unit = TimerUnit(self.last_pos, magic, SLOT_MS - 7_000, 7_000, number, 100, 0)
        self.last_pos = self.log.append(unit)
        self.log.write_out()
        self.messages[number] = Message(
            topic="rmq_sys_wheel_timer",
            queue_id=0,
            phy_offset=number,
            properties=properties.encode(),
        )

    def delivery(self, delivered: tuple[int, int] = (0, 0)) -> SlotDelivery:
        found = SlotDelivery(SLOT_MS, self.last_pos, delivered, self.log.reader, self.messages.get)
        while not found.is_walked:
            found.walk(2)
        return found


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    slot = Slot(tmp_path)
    yield slot
    slot.log.close()


def delivered(found: SlotDelivery) -> list[int]:
    numbers = []
    while not found.is_done:
        due = found.next_due()
        if due.message is not None:
            numbers.append(due.message.phy_offset)
        found.delivered += 1
    return numbers


def home(key: str) -> str:
    return f"REAL_TOPIC\x01T\x02REAL_QID\x010\x02UNIQ_KEY\x01{key}"


def test_the_oldest_first_and_recalled_ones_not(slot: Slot) -> None:
    for key in "abcde":
        slot.add(home(key))
    slot.add(home("b") + "\x02TIMER_DEL_UNIQKEY\x01T+b", MAGIC_DEFAULT | MAGIC_DELETE)
    slot.add(home("z") + "\x02TIMER_DEL_UNIQKEY\x01Other+c", MAGIC_DEFAULT | MAGIC_DELETE)
    assert delivered(slot.delivery()) == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("written", "left"),
    [
        # RocketMQ 5.3.3 means "b", 5.5 the last: nobody knows which has written it.
        ("T+b", [0, 2]),
        ("b", [0, 2, 3]),
        ("T+T+b", [0, 1, 2]),
        ("Other+b", [0, 1, 2, 3]),
        ("T+", [0, 1, 2, 3]),
        ("T", [0, 1, 2, 3]),
    ],
)
def test_a_recall_in_either_form(slot: Slot, written: str, left: list[int]) -> None:
    for key in ("a", "b", "c", "T+b"):
        slot.add(home(key))
    slot.add(home("x") + f"\x02TIMER_DEL_UNIQKEY\x01{written}", MAGIC_DEFAULT | MAGIC_DELETE)
    assert delivered(slot.delivery()) == left


def test_a_recall_is_of_its_own_topic(slot: Slot) -> None:
    slot.add(home("b").replace("REAL_TOPIC\x01T", "REAL_TOPIC\x01U"))
    for written in ("b", "U+b"):
        slot.add(home("b") + f"\x02TIMER_DEL_UNIQKEY\x01{written}", MAGIC_DEFAULT | MAGIC_DELETE)
    assert delivered(slot.delivery()) == [0]


def test_a_recall_that_rolls_recalls_nothing_yet(slot: Slot) -> None:
    slot.add(home("a"))
    magic = MAGIC_DEFAULT | MAGIC_DELETE | MAGIC_ROLL
    slot.add(home("a") + "\x02TIMER_DEL_UNIQKEY\x01T+a", magic)
    assert delivered(slot.delivery()) == [0, 1]


def test_what_cannot_be_read_is_passed(slot: Slot) -> None:
    for key in "abc":
        slot.add(home(key))
    del slot.messages[1]
    found = slot.delivery()
    found.delivered = 1
    assert found.next_due().lost
    assert delivered(slot.delivery()) == [0, 2]


def test_a_part_was_delivered_before_a_kill(slot: Slot) -> None:
    for key in "abcd":
        slot.add(home(key))
    found = slot.delivery()
    found.delivered = 3
    assert delivered(slot.delivery((3, found.last_pos))) == [3]


def test_the_progress_of_a_slot_that_was_built_anew(slot: Slot) -> None:
    for key in "abcd":
        slot.add(home(key))
    assert delivered(slot.delivery((3, 4_711))) == [0, 1, 2, 3]
    assert delivered(slot.delivery((9, 104))) == [0, 1, 2, 3]


def test_what_was_delivered_while_the_slot_was_open(slot: Slot) -> None:
    """Passed and counted, so that the progress of a kill means the same."""
    for key in "abcde":
        slot.add(home(key))

    def opened(done: tuple[int, int] = (0, 0)) -> SlotDelivery:
        read = slot.messages.get
        found = SlotDelivery(SLOT_MS, slot.last_pos, done, slot.log.reader, read, {0, 3, 99})
        found.walk(10)
        return found

    assert delivered(opened()) == [1, 2, 4]
    half = opened()
    half.delivered = 4
    assert half.last_pos == 3 * 52
    assert delivered(opened((4, half.last_pos))) == [4]


def test_the_properties_of_a_delivered_message() -> None:
    """As golden five-x/store-pop-timer has them: REAL_TOPIC, REAL_QID, TIMER_OUT_MS stay."""
    unit = TimerUnit(-1, MAGIC_DEFAULT, 1795391985000, 7000, 0, 0, 0)
    before = b"TIMER_OUT_MS\x011795391992000\x02REAL_TOPIC\x01TDelay\x02REAL_QID\x012\x02"
    found = properties_of(delivered_properties(before, unit, 1795391993099))
    assert found == {
        "TIMER_OUT_MS": "1795391992000",
        "REAL_TOPIC": "TDelay",
        "REAL_QID": "2",
        "TIMER_ENQUEUE_MS": "1795391985000",
        "TIMER_DEQUEUE_MS": "1795391993099",
    }
    rolled = unit._replace(magic=MAGIC_DEFAULT | MAGIC_ROLL)
    once = delivered_properties(before, rolled, 1)
    twice = properties_of(delivered_properties(once, rolled, 2))
    assert (twice["TIMER_ROLL_TIMES"], twice["TIMER_DEQUEUE_MS"]) == ("2", "2")


@pytest.mark.parametrize("text", [b"9" * 4_301, b"-5", b"x", b"1" * 10, b"\xd9\xa3"])
def test_a_number_of_rolls_that_no_broker_has_written(text: bytes) -> None:
    """int() of so many digits raises: it ended the process, and again at every start."""
    unit = TimerUnit(-1, MAGIC_DEFAULT | MAGIC_ROLL, 1795391985000, 7000, 0, 0, 0)
    found = delivered_properties(b"TIMER_ROLL_TIMES\x01" + text, unit, 1)
    assert properties_of(found)["TIMER_ROLL_TIMES"] == "1"


@pytest.mark.parametrize("magic", [MAGIC_DEFAULT, MAGIC_DEFAULT | MAGIC_ROLL])
def test_marks_that_do_not_fit_are_left_out(magic: int) -> None:
    """A message of 32,767 bytes of properties was answered SEND_OK: it is delivered."""
    unit = TimerUnit(-1, magic, 1795391985000, 7000, 0, 0, 0)
    times = {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
    rolls = {"TIMER_ROLL_TIMES"} if unit.rolls else set()
    needs_rolls = len("\x02TIMER_ROLL_TIMES\x011") if rolls else 0
    needs_all = 62 + needs_rolls
    for room in range(90):
        before = b"KEYS\x01k\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02A\x01"
        before += b"a" * (32_767 - room - len(before))
        found = delivered_properties(before, unit, 1795391993099)
        assert found.startswith(before), room
        assert len(found) <= 32_767
        added = properties_of(found).keys() - properties_of(before).keys()
        fits = times | rolls if room >= needs_all else rolls if room >= needs_rolls else set()
        assert added == fits, room


def test_a_recall_of_another_topic(slot: Slot) -> None:
    """Who may send to Mine takes nothing out of T; nor is such a record delivered."""
    deletes = MAGIC_DEFAULT | MAGIC_DELETE
    slot.add(home("a"))
    slot.add("REAL_TOPIC\x01Mine\x02REAL_QID\x010\x02TIMER_DEL_UNIQKEY\x01T+a", deletes)
    slot.add("REAL_TOPIC\x01T+\x02REAL_QID\x010\x02TIMER_DEL_UNIQKEY\x01T+a", deletes)
    slot.add("REAL_QID\x010\x02TIMER_DEL_UNIQKEY\x01T+a", deletes)
    assert delivered(slot.delivery()) == [0]
