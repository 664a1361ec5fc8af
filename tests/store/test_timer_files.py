"""The timers' files against those of a Java 5.3.3 broker (golden); the end of a full file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.timer.slot import Slot
from store.timer.timer_checkpoint import (
    load_timer_checkpoint,
    write_timer_checkpoint,
)
from store.timer.timer_log import BLANK, BLANK_MAGIC, TimerLog, TimerUnit
from store.timer.timer_metrics import TimerMetrics, load_timer_metrics
from store.timer.timer_wheel import WHEEL_SIZE, TimerWheel, TimerWheelReader
from tests.support.archives import unpack

GOLDEN = Path(__file__).parents[1] / "golden" / "timer-5.3.3"


@pytest.fixture(scope="module")
def java_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("java")
    unpack(GOLDEN / "store-clean-stop.tar.xz", target)
    return target / "store"


def lines_of(kind: str) -> Iterator[dict[str, int]]:
    for line in (GOLDEN / "timer-units.txt").read_text().splitlines():
        name, number, text = line.split(" ", 2)
        if name == kind:
            yield {"at": int(number), **eval(text)}


def test_the_wheel_of_java_is_read(java_store: Path) -> None:
    reader = TimerWheelReader(java_store / "timerwheel", 1000)
    slots = list(lines_of("slot"))
    used = reader.used_slots(slots[0]["t"] * 1000)
    # The list has no slot whose only message was recalled.
    recalled = [time_ms for time_ms in used if reader.num(time_ms) == 0]
    assert len(recalled) == 1
    assert [each["t"] * 1000 for each in slots] == [each for each in used if each not in recalled]
    assert reader.all_num(slots[0]["t"] * 1000) == sum(each["num"] for each in slots)
    for each in slots:
        time_ms = each["t"] * 1000
        assert reader.slot(time_ms + 999) == Slot(time_ms, each["first"], each["last"], each["num"])
    assert reader.slot(slots[0]["t"] * 1000 + WHEEL_SIZE // 32 * 1000) is None
    assert reader.next_slot(slots[-1]["t"] * 1000 + 1000, slots[-1]["t"] * 1000 + 10**9) is None
    reader.close()


def test_the_log_of_java_is_read(java_store: Path) -> None:
    log = TimerLog(java_store / "timerlog", 104_857_600)
    expected = list(lines_of("timerlog"))
    units, is_full = log.units_of_file(0)
    assert (len(units), is_full) == (len(expected), False)
    for each in expected:
        unit = log.reader.unit(each["at"])
        assert unit == TimerUnit(
            *(each[key] for key in ("prev", "magic", "write", "delay", "offsetPy", "sizePy")),
            topic_hash=each["hash"],
        )
    assert [unit.prev_pos for unit in log.reader.chain(2756)] == [2704, -1]
    log.close()


def test_what_is_written_has_the_bytes_of_java(java_store: Path, tmp_path: Path) -> None:
    """Units and slots of Java, entered here again in their order."""
    log = TimerLog(tmp_path / "timerlog", 104_857_600)
    wheel = TimerWheel(tmp_path / "timerwheel", 1000)
    assert not wheel.open()
    for each in lines_of("timerlog"):
        time_ms = each["write"] + each["delay"]
        slot = wheel.slot(time_ms) or Slot(time_ms, -1, -1)
        pos = log.append(
            TimerUnit(
                slot.last_pos,
                *(each[key] for key in ("magic", "write", "delay", "offsetPy", "sizePy", "hash")),
            )
        )
        first = pos if slot.first_pos < 0 else slot.first_pos
        change = -1 if each["magic"] & 4 else 1
        wheel.put_slot(Slot(time_ms, first, pos, slot.num + change))
    log.write_out()
    wheel.write_out()
    assert log.flush() == log.end == 2808
    wheel.flush()
    name = "timerlog/00000000000000000000"
    with (tmp_path / name).open("rb") as ours, (java_store / name).open("rb") as theirs:
        assert ours.read(1 << 16) == theirs.read(1 << 16)
    assert (tmp_path / name).stat().st_size == (java_store / name).stat().st_size
    assert (tmp_path / "timerwheel").read_bytes() == (java_store / "timerwheel").read_bytes()
    log.close()
    wheel.close()


def test_check_point_and_metrics_of_java(java_store: Path, tmp_path: Path) -> None:
    path = java_store / "config" / "timercheck"
    checkpoint = load_timer_checkpoint(path)
    assert checkpoint is not None
    # od -A d -t x8 --endian=big config/timercheck
    assert checkpoint.encode() == path.read_bytes()[:56]
    assert (checkpoint.last_timer_queue_offset, checkpoint.last_timer_log_flush_pos) == (54, 2808)
    write_timer_checkpoint(tmp_path / "timercheck", checkpoint)
    assert (tmp_path / "timercheck").read_bytes() == path.read_bytes()
    metrics = load_timer_metrics(java_store / "config" / "timermetrics")
    assert metrics.topics["TDelay"].count == 4
    raw = json.loads((java_store / "config" / "timermetrics").read_bytes())
    assert json.loads(metrics.encode()) == raw
    assert TimerMetrics.decode(b"{}").topics == {}
    for wrong in (b"", b"[]", b'{"timingCount":{"a":1}}'):
        with pytest.raises(ValueError, match=r"timer metrics|Expecting"):
            TimerMetrics.decode(wrong)


def test_a_unit_never_crosses_a_files_end(tmp_path: Path) -> None:
    log = TimerLog(tmp_path / "timerlog", 1024)
    units = [TimerUnit(-1, 1, 1000, n, n, 400, 7) for n in range(40)]
    positions = [log.append(unit) for unit in units]
    log.write_out()
    # 19 units are 988 bytes: 36 are left, a blank fills them.
    assert positions[18:20] == [936, 1024]
    data = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    assert BLANK.unpack_from(data, 988) == (36, 0, BLANK_MAGIC)
    assert [log.reader.unit(pos) for pos in positions] == units
    assert [log.units_of_file(start)[1] for start in log.start_offsets()] == [True, True, False]
    assert log.last_unit_of_file(0) == units[18]
    log.begin_at(positions[20])
    assert log.start_offsets() == [0, 1024]
    assert log.reader.unit(positions[20]) is None
    assert log.append(units[20]) == positions[20]
    log.close()
