"""conf.config_fields: what a declaration says, and what is read back from it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest

from conf.config_fields import AFTER_RESTART, NOW, FieldSpec, computed, field_specs, setting


class Colour(enum.Enum):
    """A choice."""

    RED = 1
    BLUE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One field of each kind."""

    plain: int = setting(7, "a number")
    queue_wait_time_mills: int = setting(
        200, "a time", unit="ms", ge=0, le=1000, important=True, changeable=NOW
    )
    check_crc: bool = setting(True, "a switch", key="checkCRC", changeable=AFTER_RESTART)
    at_least: int = setting(5, "open above", ge=5)
    at_most: float = setting(0.5, "open below", le=1)
    colour: Colour = setting(Colour.RED, "a choice")
    home: str | None = setting(None, "may be unset", env="SAMPLE_HOME")
    host: str = setting(computed(lambda: "h-17", "the host's name"), "depends on the host")


SPECS = {spec.name: spec for spec in field_specs(Sample)}


def test_the_class_holds_values() -> None:
    sample = Sample(plain=8)
    assert (sample.plain, sample.queue_wait_time_mills, sample.host) == (8, 200, "h-17")
    assert (sample.colour, sample.home) == (Colour.RED, None)
    assert not hasattr(sample, "__dict__")


def test_everything_declared_is_read_back() -> None:
    assert SPECS["queue_wait_time_mills"] == FieldSpec(
        name="queue_wait_time_mills",
        key="queueWaitTimeMills",
        kind=int,
        optional=False,
        doc="a time",
        unit="ms",
        minimum=0,
        maximum=1000,
        important=True,
        env=None,
        changeable=NOW,
        shown_default="200",
    )


def test_a_key_follows_from_the_name_unless_it_is_given() -> None:
    assert [spec.key for spec in SPECS.values()] == [
        *("plain", "queueWaitTimeMills", "checkCRC", "atLeast", "atMost", "colour", "home", "host")
    ]


def test_a_setting_is_not_changeable_unless_it_is_declared() -> None:
    assert {spec.key: spec.changeable for spec in SPECS.values() if spec.changeable} == {
        "queueWaitTimeMills": NOW,
        "checkCRC": AFTER_RESTART,
    }


def test_what_the_documentation_shows_as_default() -> None:
    shown = {name: spec.shown_default for name, spec in SPECS.items()}
    assert shown["host"] == "the host's name"
    assert (shown["home"], shown["colour"], shown["check_crc"]) == ("", "RED", "true")
    assert (shown["plain"], shown["at_most"]) == ("7", "0.5")


def test_the_environment_variable() -> None:
    assert {spec.env for spec in SPECS.values()} == {None, "SAMPLE_HOME"}


@pytest.mark.parametrize(
    ("name", "expectation"),
    [
        ("plain", "a whole number"),
        ("queue_wait_time_mills", "a whole number in 0..1000 (ms)"),
        ("at_least", "a whole number in 5.."),
        ("at_most", "a number in ..1"),
        ("colour", "one of RED, BLUE"),
    ],
)
def test_what_an_error_says_is_expected(name: str, expectation: str) -> None:
    assert SPECS[name].expectation() == expectation


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [("at_least", "5", "4"), ("at_most", "1", "1.01"), ("queue_wait_time_mills", "1000", "1001")],
)
def test_bounds_are_inclusive(name: str, inside: str, outside: str) -> None:
    assert SPECS[name].parse(inside) == float(inside)
    with pytest.raises(ValueError, match="in "):
        SPECS[name].parse(outside)
