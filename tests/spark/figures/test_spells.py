"""A life that changes its role becomes several: what each counts, when it began, what is before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from spark.dumps.dump_line import decode_line
from spark.figures.sample_stream import Sample
from spark.figures.spells import prove_gaps, split_spells, times_as_leader
from spark.vocabulary import IS_MASTER
from tests.spark.dump_lines_builder import T0, Life, replica, sends, sync


def samples_of(*lines: dict[str, Any]) -> list[Sample]:
    decoded = [decode_line(msgspec.json.encode(line), T0) for line in lines]
    return [Sample(line, line.ts, {row.id: row for row in line.replicas or ()}) for line in decoded]


def member(leads: bool, epoch: int, since: int) -> dict[str, Any]:
    return {"member": {"leads": leads, "epoch": epoch, "since": since, "master": 1}}


def life(broker_id: int = 1, **fields: Any) -> Life:
    boot = f"{broker_id:08x}" * 2
    return Life(marks=True, broker_id=broker_id, boot=boot, role="SYNC_MASTER", **fields)


def mono(ts: int) -> int:
    return 1_000_000 + ts - T0


def shown(samples: list[Sample]) -> list[tuple[Any, ...]]:
    """(boot, seq, role, seconds of ts, ok, refused) of each."""
    return [
        (
            sample.line.boot.partition("/")[2] or "-",
            sample.line.seq,
            sample.line.role,
            (sample.ts - T0) / 1000,
            sample.line.sends.ok if sample.line.sends else None,
            sample.line.sends.refused if sample.line.sends else None,
        )
        for sample in sorted(samples, key=lambda s: (s.line.boot_ts, s.line.boot, s.line.seq))
    ]


def test_lines_without_a_member_stay_as_they_are() -> None:
    made = Life(marks=True)
    given = samples_of(made.line(T0 + 5_000), made.line(T0 + 10_000))
    before = [sample.line for sample in given]
    assert [sample.line for sample in split_spells(given)] == before
    assert split_spells(given) == given


def one_that_leads_for_a_while() -> list[Sample]:
    made = life()
    follows, leads = member(False, 4, mono(T0)), member(True, 5, mono(T0 + 12_000))
    later = member(False, 6, mono(T0 + 23_000))
    return samples_of(
        made.line(T0 + 5_000, sends=sends(refused=1), **follows),
        made.line(T0 + 10_000, sends=sends(refused=2), **follows),
        made.line(T0 + 15_000, sends=sends(30, refused=3), msgs_in=30, **leads),
        made.line(T0 + 20_000, sends=sends(80, refused=3), msgs_in=80, **leads),
        made.line(T0 + 25_000, sends=sends(110, refused=7), msgs_in=110, **later),
        made.line(T0 + 30_000, sends=sends(110, refused=9), msgs_in=110, **later),
    )


def test_each_spell_counts_its_own() -> None:
    found = split_spells(one_that_leads_for_a_while())
    assert shown(found) == [
        ("-", 1, "SLAVE", 5.0, 0, 1),
        ("-", 2, "SLAVE", 10.0, 0, 2),
        ("3", 1, "SYNC_MASTER", 15.0, 30, 1),
        ("3", 2, "SYNC_MASTER", 20.0, 80, 1),
        ("3", 3, "SYNC_MASTER", 23.0, 110, 5),
        ("5", 1, "SLAVE", 25.0, 0, 0),
        ("5", 2, "SLAVE", 30.0, 0, 2),
    ]
    leader = [sample.line for sample in found if sample.line.role == "SYNC_MASTER"]
    assert {line.boot_ts for line in leader} == {T0 + 12_000}
    assert [line.msgs_in for line in leader] == [30, 80, 110]


def test_a_spell_names_the_one_before() -> None:
    lines = {
        (sample.line.boot.partition("/")[2], sample.line.seq): sample.line
        for sample in split_spells(one_that_leads_for_a_while())
    }
    boot = "00000001" * 2
    past = {key: (line.prev_boot, line.prev_seq) for key, line in lines.items()}
    assert past["3", 1] == past["3", 3] == (boot, 2)
    assert past["5", 1] == past["5", 2] == (f"{boot}/3", 3)
    assert [key for key, line in lines.items() if line.final] == [("", 2), ("3", 3)]


def test_a_later_life_names_the_last_spell_and_what_that_had_counted() -> None:
    made = life()
    follows, leads = member(False, 4, mono(T0)), member(True, 5, mono(T0 + 7_000))
    first = made.line(T0 + 5_000, sends=sends(refused=2), sync=sync(), **follows)
    second = made.line(T0 + 10_000, sends=sends(30, refused=2), sync=sync(30), **leads)
    ended = {"boot": made.boot, "uncounted_ms": 3}
    counted = {"sends": sends(45, refused=4), "sync": sync(45)}
    next_life = made.restarted(T0 + 20_000)
    third = next_life.line(T0 + 21_000, ended=ended | counted, **member(False, 6, 0))
    (found,) = (
        sample.line
        for sample in split_spells(samples_of(first, second, third))
        if sample.line.boot == next_life.boot
    )
    assert (found.prev_boot, found.prev_seq) == (f"{made.boot}/2", 1)
    assert found.ended is not None
    assert (found.ended.boot, found.ended.sends.ok, found.ended.sends.refused) == (
        *(f"{made.boot}/2", 45, 2),
    )


def two_leaders(*, answers_on: bool) -> list[Sample]:
    """Broker 1 believes to lead until the end; broker 2 leads from 12 s on."""
    old, new = life(1), life(2)
    lead, leads = member(True, 4, mono(T0)), member(True, 5, mono(T0 + 12_000))
    counts = [50, 80, 90, 110] if answers_on else [50, 80, 80, 80]
    lines = [
        old.line(T0 + 5_000 * place, sends=sends(ok), **lead) for place, ok in enumerate(counts, 2)
    ]
    lines += [
        new.line(T0 + 10_000, **member(False, 4, mono(T0))),
        new.line(T0 + 15_000, sends=sends(10), **leads),
        new.line(T0 + 20_000, sends=sends(30), **leads),
    ]
    return split_spells(samples_of(*lines))


def test_an_isolated_leader_that_answers_nothing_well_leads_no_more() -> None:
    found = [each for each in two_leaders(answers_on=False) if each.line.broker_id == 1]
    assert shown(found) == [
        ("-", 1, "SYNC_MASTER", 10.0, 50, 0),
        ("-", 2, "SYNC_MASTER", 12.0, 80, 0),
        ("2", 1, "SLAVE", 15.0, 0, 0),
        ("2", 2, "SLAVE", 20.0, 0, 0),
        ("2", 3, "SLAVE", 25.0, 0, 0),
    ]


def test_one_that_answers_on_is_a_second_master() -> None:
    found = [each for each in two_leaders(answers_on=True) if each.line.broker_id == 1]
    roles = [(each.ts - T0, each.line.role) for each in found]
    assert (20_000, "SYNC_MASTER") in roles
    assert (25_000, "SYNC_MASTER") in roles


def gap_of(*, epoch: int = 5, is_end: bool = True, later_ts: Sequence[int] = ()) -> int | None:
    """Begin of the down time before a second leader, whose predecessor's last line is its last or
    may not be."""
    old, new = life(1), life(2)
    one = samples_of(old.line(T0 + 10_000, final=is_end, **member(True, 4, mono(T0))))
    other = samples_of(
        new.line(T0 + 10_000, **member(False, 4, mono(T0))),
        new.line(T0 + 15_000, **member(True, epoch, mono(T0 + 13_000))),
    )
    leads = member(True, epoch, mono(T0 + 13_000))
    later = [new.line(ts, mono=mono(T0 + 15_100), **leads) for ts in later_ts]
    found = split_spells([*one, *other, *samples_of(*later)])
    before, first, *rest = (each for each in found if each.line.role == "SYNC_MASTER")
    first.predecessor = before
    prove_gaps([before, first, *rest], [])
    return first.down_ms


def test_nobody_led_between_two_epochs() -> None:
    assert gap_of() == T0 + 10_000
    assert gap_of(epoch=6) is None, "a third one may have led in epoch 5"
    assert gap_of(is_end=False) is None, "its last lines may be lost"


def test_a_clock_that_is_set_back_tells_of_no_time_twice() -> None:
    """Of what a leader's later lines tell, before its first one, nothing is down as well."""
    assert gap_of(later_ts=[T0 + 12_500]) == T0 + 12_500
    assert gap_of(later_ts=[T0 + 12_500, T0 + 12_300]) == T0 + 12_500
    assert gap_of(later_ts=[T0 + 20_000]) == T0 + 10_000


def test_who_leads_is_no_replica() -> None:
    found = split_spells(one_that_leads_for_a_while())
    masters = sorted(
        (each for each in found if each.line.role == "SYNC_MASTER"), key=lambda each: each.ts
    )
    for before, sample in zip([None, *masters], masters, strict=False):
        sample.start_ms = sample.line.boot_ts if before is None else before.ts
        sample.same_boot = before is not None
    assert times_as_leader(("c", "b"), masters) == {"b:1": [(T0 + 12_000, T0 + 23_000, IS_MASTER)]}


def test_a_follower_has_no_rows() -> None:
    made = life()
    (found,) = split_spells(
        samples_of(made.line(T0 + 5_000, replicas=[replica()], **member(False, 4, 0)))
    )
    assert (found.line.role, found.rows, found.line.replicas) == ("SLAVE", {}, None)
