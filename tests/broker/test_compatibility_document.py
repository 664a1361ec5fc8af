"""docs/compatibility.md is what our route tables and the facts about the originals say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker import compatibility_document
from tests.broker.compatibility_document import (
    COMMAND,
    DOCUMENT,
    Served,
    asked_by_sources,
    document,
    faults,
    served,
)
from tests.broker.compatibility_facts import (
    BROKER_498,
    DEFINED_498,
    DEFINED_533,
    DEFINED_550,
    DEFINED_551,
    NAMESRV_498,
    ONLY_498,
    Gap,
)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return served(tmp_path_factory.mktemp("compatibility"))


def test_there_is_no_gap_without_a_reason(ours: Served) -> None:
    """Something is missing here: tell tests/broker/compatibility_facts.py why, or build it."""
    assert faults(ours) == []


def test_nothing_of_498_is_missing(ours: Served) -> None:
    assert BROKER_498 - ours.broker == frozenset()
    assert NAMESRV_498 - ours.namesrv == frozenset()


def test_the_document_is_up_to_date(ours: Served) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == document(ours), f"write docs/compatibility.md anew: {COMMAND}"


def test_what_the_originals_define() -> None:
    assert (len(DEFINED_498), len(DEFINED_533), len(DEFINED_550)) == (95, 158, 169)
    assert DEFINED_498 - DEFINED_533 == ONLY_498


# -- it fails when it should -----------------------------------------------------------------------


def test_a_code_that_ours_no_longer_answers_is_a_fault(ours: Served) -> None:
    poorer = replace(ours, broker=ours.broker - {310}, vip=ours.vip - {310})
    assert faults(poorer) == [
        "answered by 4.9.8, not by ours, and without a reason: 310",
    ]
    assert "| 310 | SEND_MESSAGE_V2 | – | yes | yes | yes | gap: unexplained |" in document(poorer)


def test_a_code_that_ours_answers_now_is_a_fault_while_the_facts_say_why_not(
    ours: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = Gap("static topics", frozenset({513}), "A reason that is out of date.")
    monkeypatch.setattr(compatibility_document, "GAPS_533", (gap,))
    assert faults(ours) == ["a reason is given, but there is no gap at 5.3.3: 513"]
    poorer = replace(ours, broker=ours.broker - {513}, vip=ours.vip - {513})
    assert faults(poorer) == []
    assert "| static topics | 513 | A reason that is out of date. |" in document(poorer)


def test_a_code_that_nobody_knows_is_a_fault(ours: Served) -> None:
    strange = replace(ours, broker=ours.broker | {4711}, vip=ours.vip | {4711})
    assert faults(strange) == [
        "answered by ours, but not in the facts: 4711",
        "answered by ours, by no release of RocketMQ: 4711",
    ]


def test_a_code_on_the_wrong_port_is_a_fault(ours: Served) -> None:
    assert faults(replace(ours, vip=ours.vip | {11})) == [
        "not on the VIP port, in only one of routes and facts: 11"
    ]


def test_what_ours_no_longer_asks_of_clients_is_a_fault(ours: Served) -> None:
    assert faults(replace(ours, to_clients=ours.to_clients - {39})) == [
        "asked of clients by RocketMQ only: 39"
    ]


def test_a_name_server_code_that_is_gone_is_a_fault(ours: Served) -> None:
    assert faults(replace(ours, namesrv=ours.namesrv - {217, 318})) == [
        "answered by 4.9.8, not by ours, and without a reason: 318",
        "answered by 5.3.3, not by ours, and without a reason: 217",
        "notes on what ours does not answer: 318",
    ]


def test_two_reasons_for_one_gap_are_a_fault(ours: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gap = Gap("once", frozenset({370}), "Once.")
    poorer = replace(ours, broker=ours.broker - {370}, vip=ours.vip - {370})
    monkeypatch.setattr(compatibility_document, "GAPS_533", (gap, gap))
    assert "two reasons for one gap at 5.3.3" in faults(poorer)


def test_the_facts_about_constants_follow_ours(
    ours: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility_document, "DEFINED_551", DEFINED_551 | {7})
    assert faults(ours) == [
        "defined in only one of RequestCode and the facts: 7",
        "answered by no program, or not listed as such: 7",
    ]


def test_a_source_asks_for_what_it_names_outside_tables(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text(
        "TABLE = {RequestCode.HEART_BEAT: serve}\n"
        "ask(RequestCode.CHECK_TRANSACTION_STATE, Code.PULL_MESSAGE, other.RequestCode)\n"
    )
    assert sorted(asked_by_sources([source])) == [11, 39]


def test_writing_it_anew(
    ours: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "compatibility.md"
    monkeypatch.setattr(compatibility_document, "DOCUMENT", target)
    monkeypatch.setattr(compatibility_document, "served", lambda _root: ours)
    monkeypatch.chdir(tmp_path)
    compatibility_document.main()
    assert capsys.readouterr().out == "written: compatibility.md\n"
    assert target.read_text(encoding="utf-8") == document(ours)


def test_with_a_fault_nothing_is_written(
    ours: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poorer = replace(ours, broker=ours.broker - {310}, vip=ours.vip - {310})
    monkeypatch.setattr(compatibility_document, "DOCUMENT", tmp_path / "compatibility.md")
    monkeypatch.setattr(compatibility_document, "served", lambda _root: poorer)
    with pytest.raises(SystemExit) as caught:
        compatibility_document.main()
    assert caught.value.code == (
        "tests/broker/compatibility_facts.py:\n"
        "answered by 4.9.8, not by ours, and without a reason: 310"
    )
    assert not (tmp_path / "compatibility.md").exists()
