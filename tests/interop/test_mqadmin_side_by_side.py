"""RocketMQ's mqadmin against ours and against a Java broker: every command that it registers.

4.9.8 beside a 4.9 broker, 5.5.0 (or 5.3.3) beside its own. Both worlds are prepared alike and run
the same steps (admin_steps.py); what was printed is compared values apart (admin_world.py); what
differs stands in admin_differences.py, with its reason.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.interop.admin_differences import (
    ANSWERED,
    DIFFERS,
    LOCAL,
    NOTHING_FOR,
    REFUSAL,
    RELEASES,
    SAME_WORDS,
)
from tests.interop.admin_steps import BEYOND, PHASES
from tests.interop.admin_world import AdminWorld, Output
from tests.interop.java_peers import CLIENT_5, LINE_5
from tests.support.exporter_parser import broker_runtime_stats

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

REGISTERED = {"4.9": 56, "5.3": 89, "5.5": 96}


@dataclass(frozen=True)
class Sides:
    """Both worlds, after their steps."""

    line: str
    commands: list[str]
    java: AdminWorld
    ours: AdminWorld
    beyond: list[Output]
    """What only 5.x has, asked of ours."""
    beyond_java: list[Output]
    """The same, asked of Java's."""


_LINES = [
    pytest.param("4.9", marks=pytest.mark.long, id="mqadmin-4.9.8"),
    pytest.param(LINE_5, id=f"mqadmin-{CLIENT_5}"),
]
"""A minute each; the newer one registers more."""


@pytest.fixture(scope="module", params=_LINES)
def sides(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sides]:
    line: str = request.param
    directory = tmp_path_factory.mktemp(f"mqadmin-{line}")
    java, ours = (
        AdminWorld(kind, directory / kind, RELEASES[line]) for kind in (f"java-{line}", "ours")
    )

    common: dict[str, int] = {}

    def live(world: AdminWorld) -> None:
        world.start()
        world.run(PHASES)
        common[world.kind] = len(world.outputs)
        if line != "4.9":
            world.run([BEYOND])

    try:
        with ThreadPoolExecutor() as threads:
            for done in [threads.submit(live, world) for world in (java, ours)]:
                done.result()
        beyond = {world.kind: world.outputs[common[world.kind] :] for world in (java, ours)}
        for world in (java, ours):
            del world.outputs[common[world.kind] :]
        yield Sides(line, ours.commands(), java, ours, beyond[ours.kind], beyond[java.kind])
    finally:
        java.stop()
        ours.stop()


def test_every_registered_command_is_asked(sides: Sides) -> None:
    assert len(sides.commands) == REGISTERED[sides.line]
    asked = {each.step.command for each in (*sides.ours.outputs, *sides.beyond)}
    local = set(LOCAL) if sides.line != "4.9" else set()
    assert asked | local == set(sides.commands)
    assert not asked & local


def test_every_command_ends(sides: Sides) -> None:
    outputs = (*sides.java.outputs, *sides.ours.outputs, *sides.beyond)
    assert [each.raw for each in outputs if not each.ended] == []


def test_the_commands_print_what_they_print_against_java(sides: Sides) -> None:
    different: dict[str, str] = {}
    for java, ours in zip(sides.java.outputs, sides.ours.outputs, strict=True):
        assert java.step == ours.step
        if java.lines != ours.lines:
            changes = difflib.unified_diff(java.lines, ours.lines, "java", "ours", "", "", 1, "")
            text = "\n".join((f"{java.step.command} {java.step.arguments}", *changes, ""))
            different[java.step.command] = different.get(java.step.command, "") + text
    known = DIFFERS[sides.line]
    assert "\n".join(text for command, text in different.items() if command not in known) == ""
    assert sorted(different) == sorted(known)


def test_what_only_5_x_has_is_refused_in_words(sides: Sides) -> None:
    refused = {each.step.command: each.raw for each in sides.beyond}
    for command, words in ANSWERED.items():
        if command in refused:
            assert re.search(words, refused.pop(command))
    assert sorted(refused) == (sorted(NOTHING_FOR) if sides.line != "4.9" else [])
    for command, text in refused.items():
        assert re.search(REFUSAL, text), (command, text)


def test_a_java_broker_without_a_controller_says_the_same(sides: Sides) -> None:
    theirs = {each.step.command: each.lines for each in sides.beyond_java}
    ours = {each.step.command: each.lines for each in sides.beyond}
    if sides.line != "4.9":
        asked = [name for name in SAME_WORDS if name in ours]
        assert [ours[name] for name in asked] == [theirs[name] for name in asked]


def test_rocketmq_exporter_reads_the_runtime_info(sides: Sides) -> None:
    stats = broker_runtime_stats(sides.ours.runtime)
    assert sides.ours.runtime["brokerVersionDesc"] == "V4_9_8"
    assert stats["commitLogMaxOffset"] > 0
    assert stats["msgPutTotalTodayNow"] > 0
    assert stats["commitLogDirCapacityTotal"] > stats["commitLogDirCapacityFree"] > 0
    if sides.line == "4.9":
        keys = {re.sub(r"_/.*", "_PATH", key) for key in sides.java.runtime}
        assert keys <= {re.sub(r"_/.*", "_PATH", key) for key in sides.ours.runtime}
