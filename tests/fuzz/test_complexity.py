"""The complexity fuzzer finds what costs more than linear time or memory, and nothing else does.

FUZZ_SECONDS is for the changes of test_fuzz.py; this has COMPLEXITY_SECONDS of the clock (12) for
all worlds together, of a fixed order; a long run has ten minutes, and each time another order. All
places take more than an hour: `python -m tests.fuzz complexity --seconds 3600`.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remoting.request_code import RequestCode
from tests.broker.hot_path_world import send_fields
from tests.fuzz import complexity
from tests.fuzz.complexity import Measure, Outcome, all_trials, judge
from tests.fuzz.growth import Trial
from tests.fuzz.served_connection import request
from tests.fuzz.turns import Turns

SECONDS = float(os.environ.get("COMPLEXITY_SECONDS", "12"))
LONG_SECONDS = float(os.environ.get("COMPLEXITY_SECONDS", "600"))


@pytest.mark.slow
@pytest.mark.timeout(300 + 3 * SECONDS)
@pytest.mark.parametrize("kind", complexity.SHARES)
def test_no_place_of_a_request_costs_more_than_linear(
    kind: str, proved: Callable[[str], None]
) -> None:
    outcome = complexity.run(kind, SECONDS * complexity.SHARES[kind], seed=26)
    assert not outcome.findings, outcome.findings
    assert outcome.trials > 0
    proved(f"complexity of {kind}: {outcome.trials} places grown, {outcome.left} left")


@pytest.mark.long
@pytest.mark.timeout(300 + 3 * LONG_SECONDS)
@pytest.mark.parametrize("kind", complexity.SHARES)
def test_other_places_and_ways_cost_no_more(kind: str, proved: Callable[[str], None]) -> None:
    seed = time.time_ns() % 2**31
    outcome = complexity.run(kind, LONG_SECONDS * complexity.SHARES[kind], seed)
    assert not outcome.findings, (seed, outcome.findings)
    proved(f"complexity of {kind}, seed {seed}: {outcome.trials} grown, {outcome.left} left")


_MARKED_BATCHES = (
    (310, "batch of REAL_QID"),
    (310, "batch of TIMER"),
    (310, "batch of DELAY"),
    (200151, "$: short members"),
    (200151, "body: loose"),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[Measure, list[Trial]]]:
    with Measure("broker") as measure:
        yield measure, list(all_trials(measure))


def test_every_code_has_places(broker: tuple[Measure, list[Trial]]) -> None:
    measure, found = broker
    assert measure.world().served() - {trial.code for trial in found} == set()


def test_every_code_of_a_name_server_has_places() -> None:
    with Measure("namesrv") as measure:
        codes = {trial.code for trial in all_trials(measure)}
        assert measure.world().served() - codes == set()


def test_places_come_from_headers_and_bodies(broker: tuple[Measure, list[Trial]]) -> None:
    """No list of them is kept: a field that a processor begins to read is grown."""
    places = {trial.place for trial in broker[1]}
    for place in (
        (200050, "exp"),
        (200050, "attemptId"),
        (310, "i"),
        (34, "$['consumerDataSet']"),
        (34, "$['consumerDataSet'][0]['subscriptionDataSet'][0]['subString']"),
        (41, "$['mqSet']"),
        (200151, "$['acks'][0]['b']"),
        (41, "$['mqSet'][0]['topic']"),
    ):
        assert place in places, place


def test_thresholds_of_cold_reads_are_bounded(broker: tuple[Measure, list[Trial]]) -> None:
    """Read on the loop, with a line of the log for each group."""
    world = broker[0].world()
    assert isinstance(world, complexity.BrokerCosts)
    peer = world.connect()
    for body, code in ((b"g=1\n", 0), (b"g=1\n" * 16_385, 29)):
        peer.feed(request(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, body))
        world.turn()
        (answer,) = peer.answers()
        assert answer.code == code, answer


def grown(
    broker: tuple[Measure, list[Trial]], code: int, name: str, scale: int, *, forms: int = 9
) -> dict[str, str]:
    """The findings of the places of `code` whose name begins with `name`, in at most so many of
    the forms in which the seeds write that request."""
    measure, found = broker
    outcome, seen = Outcome(), Counter[str]()
    for trial in found:
        if trial.code == code and trial.name.startswith(name) and seen[trial.name] < forms:
            seen[trial.name] += 1
            judge(measure, trial, scale, outcome)
    assert seen, name
    return outcome.findings


def test_what_was_found_first(broker: tuple[Measure, list[Trial]]) -> None:
    """Properties of WAIT (F12) and batches with long common properties (F16): each was found when
    this was written, and costs little now."""
    assert grown(broker, 310, "i: pairs", 1_000_000) == {}
    assert grown(broker, 310, "batch of 34 bytes each, with a long", 1_000_000) == {}


def test_what_was_found_with_reserved_properties_and_unknown_names(
    broker: tuple[Measure, list[Trial]],
) -> None:
    """20,000 messages with REAL_QID took a turn of 186 ms, 90,000 unknown members 120 ms, and
    1 MB of a list in fastjson's looser form 380 ms. One form of each."""
    for code, name in _MARKED_BATCHES:
        assert grown(broker, code, name, 1_000_000, forms=1) == {}


@pytest.mark.long
def test_what_was_found_in_every_form_of_its_request(
    broker: tuple[Measure, list[Trial]],
) -> None:
    for code, name in _MARKED_BATCHES:
        assert grown(broker, code, name, 1_000_000) == {}


@pytest.mark.parametrize("kind", ["broker-acl", "broker-users"])
def test_signed_requests_are_served(kind: str) -> None:
    """What is behind the checks is grown, too: the account may send and pull."""
    with Measure(kind) as measure:
        world: Any = measure.world()
        peer = world.connect()
        fields = send_fields(topic="GTopic", queue_id=0, properties="")
        unsigned = request(RequestCode.SEND_MESSAGE_V2, fields, b"x")
        for data, code in ((world._signed(unsigned), 0), (unsigned, None)):
            peer.feed(data)
            world.turn()
            (answer,) = peer.answers()
            assert (answer.code == 0) == (code == 0), answer
        places = {trial.place for trial in all_trials(measure)}
        assert (200151, "$['acks'][0]['b']") in places


def test_streams_at_the_ha_port_are_read() -> None:
    """Valid ones to their end: the handshake holds, the reports are taken, the records are
    stored."""
    with Measure("ha") as measure:
        world: Any = measure.world()
        for trial in all_trials(measure):
            if trial.name.endswith(("equal", "rising", "record each", "records each", "in one")):
                world.ask(trial.build(100_000, 0))
                assert world.read > 90_000, trial.name


# -- the judge: what it has to notice --------------------------------------------------------------


class _World:
    """Takes frames of its own: a letter for what to do with all of them."""

    def __init__(self, _root: Path) -> None:
        self.turns = Turns()

    def served(self) -> set[int]:
        return {1}

    def ask(self, data: bytes) -> None:
        self.turns.begin()
        try:
            self._take(data[:1], data)
        finally:
            self.turns.end_turn()

    def _take(self, kind: bytes, data: bytes) -> None:
        if kind == b"q":
            for at in range(0, len(data), 2000):
                data[at:].find(b"nothing")
        elif kind == b"l":
            for _ in range(len(data)):
                pass
        elif kind == b"m":
            assert b"x" * (len(data) * 80)
        elif kind == b"p":
            with self.turns.inside(loop=False):
                _spin(0.06)
        elif kind == b"t":
            _spin(0.06)
        elif kind == b"h":
            _spin(600)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def fake_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker is a `_World`. It leaves no garbage: to look through all that the run has imported,
    each time that there is a new one, would be most of what the judge's tests cost."""
    gc.collect()
    gc.freeze()
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    monkeypatch.setitem(complexity.WORLDS, "broker", _World)


def _spin(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


@pytest.mark.usefixtures("fake_worlds")
@pytest.mark.parametrize(
    ("kind", "longest_turn_s", "words"),
    [
        ("q", 9, "time grows"),
        ("l", 9, ""),
        ("m", 9, "too much"),
        ("p", 0.04, ""),
        ("t", 0.04, "a turn of"),
        ("h", 0.04, "a turn of"),
    ],
)
def test_what_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, kind: str, longest_turn_s: float, words: str
) -> None:
    monkeypatch.setattr(complexity, "LONGEST_TURN_S", longest_turn_s)
    monkeypatch.setattr(complexity, "pace", lambda: 1.0)
    monkeypatch.setattr(complexity, "_LIMIT_S", 0.2 if kind == "h" else 9)
    monkeypatch.setattr(complexity, "LONGEST_S", 4 * longest_turn_s)
    monkeypatch.setattr(complexity, "_CONFIRMATIONS", 1)
    trial = Trial(1, kind, lambda size, _salt: kind.encode() * size)
    outcome = Outcome()
    with Measure("broker") as measure:
        judge(measure, trial, 1_000_000, outcome)
    found = list(outcome.findings.values())
    assert bool(found) == bool(words), found
    assert all(one.startswith(words) for one in found)


@pytest.mark.usefixtures("fake_worlds")
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_what_does_not_come_every_time_is_none(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """A machine that is busy for a while looks like a place that costs too much."""
    said = iter([*["too much"] * times, None])
    monkeypatch.setattr(complexity, "_FLOOR_S", 0.0)
    monkeypatch.setattr(complexity, "_objection", lambda _costs: next(said))
    outcome = Outcome()
    with Measure("broker") as measure:
        judge(measure, Trial(1, "l", lambda size, _salt: b"l" * size), 1_000, outcome)
    assert bool(outcome.findings) == (times == 4)
