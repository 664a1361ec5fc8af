"""ExposureMarks: what was at risk between two looks, by reports of both kinds."""

from __future__ import annotations

from ha.exposure_marks import AtRisk, ExposureMarks
from ha.slave_progress import SlaveProgress


def at(offset: int) -> list[SlaveProgress]:
    """The only replica, which has the log up to here."""
    return [SlaveProgress("10.0.0.1:1", offset, offset, now_ms=0, wall_ms=0)]


def test_after_reports_of_a_loan_less_may_have_been_at_risk() -> None:
    """No replica had more than 100 when the next report came, but that many it had: of the 120
    bytes of the log then, 20 were at risk for sure."""
    marks = ExposureMarks()
    marks.take(0, 0, 0, 0)
    marks.lent(at(100), 10)
    marks.acknowledged(at(150), 120, 190)
    assert marks.take(150, 150, 150, 150) == AtRisk(20, 90)


def test_what_was_at_risk_while_it_was_lent() -> None:
    marks = ExposureMarks()
    marks.take(0, 0, 0, 0)
    marks.lent(at(100), 30)
    marks.lent(at(100), 70)  # nothing more has come
    assert marks.take(100, 100, 100, 100) == AtRisk(30, 30)


def test_before_the_first_look_nothing_is_known() -> None:
    marks = ExposureMarks()
    marks.lent(at(100), 30)
    marks.acknowledged(at(200), 250, 250)
    assert marks.take(200, 200, 200, 200) == AtRisk(0, 0)
