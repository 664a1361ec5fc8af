"""broker.admin.admin_mode_processor: what a 5.3.3 broker with its default settings answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.admin.admin_mode_processor import AdminModeProcessor
from ipc.command_channel import CommandError
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import FakeConnection, request_of
from tests.remoting.golden_controller import golden_command
from tests.support.manual_clock import ManualClock

GOLDEN = Path(__file__).parents[2] / "golden" / "default-modes-5.3.3.json"
CLOCK = ManualClock(monotonic_ms=50_000)
EXCHANGES = json.loads(GOLDEN.read_text())


def ask(code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
    request = request_of(code, body, **fields)
    try:
        answer = AdminModeProcessor(CLOCK.monotonic_ms).process_request(FakeConnection(), request)
    except RequestError as error:
        return request.response(error.code, error.remark)
    assert answer is not None
    return answer


@pytest.mark.parametrize("role", ["master", "slave"])
def test_every_answer_is_javas(role: str) -> None:
    own = [
        row
        for row in EXCHANGES[role]
        if row["request"] in AdminModeProcessor(CLOCK.monotonic_ms).table
    ]
    assert len(own) == 15
    for row in own:
        if row["fields"] == {"masterEpoch": "x"}:
            continue  # Refused here: no number.
        answer = ask(row["request"], row["sent"].encode(), **row["fields"])
        told: dict[str, Any] = {"code": answer.code, "body": answer.body.decode()}
        assert told == {key: row[key] for key in told}, row
        if "Exception" not in (row["remark"] or ""):
            assert (answer.remark, answer.ext_fields) == (row["remark"], row["ext"]), row


def test_words_for_what_cannot_be_read() -> None:
    assert "Unknown config type: bogus" in str(ask(355, configType="topics;bogus").remark)
    assert "configType" in str(ask(355).remark)
    assert "masterEpoch" in str(ask(1008, masterEpoch="x").remark)
    assert ask(1008, b"{").code == 1


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"E_T": "R"}, 29, "timerRocksDBEnable must be configured true when broker start"),
        ({"E_T": "F"}, 0, "switch timer engine success"),
        ({"E_T": ""}, 29, "param error"),
        ({"E_T": "r"}, 29, "param error"),
        ({"e_t": "R"}, 29, "param error"),
        ({}, 29, "param error, extFields is null"),
    ],
)
def test_5001_as_a_broker_whose_timers_are_in_files(
    fields: dict[str, str], code: int, remark: str
) -> None:
    """The first two were seen at a 5.5.0 broker, the others are read off it."""
    answer = ask(5001, **fields)
    assert (answer.code, answer.remark) == (code, remark)
    without = AdminModeProcessor(CLOCK.monotonic_ms, has_timers=False)
    with pytest.raises(RequestError, match="broker timerWheelEnable is false") as caught:
        without.process_request(FakeConnection(), request_of(5001, b"", **fields))
    assert caught.value.code == 29


class Ha:
    """Process ha of a member."""

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        self.calls.append((command, arguments))
        if self.answer is None:
            raise CommandError(f"{command}: no response from process ha")
        return self.answer


def test_epochs_in_controller_mode_are_java_s_bytes() -> None:
    golden = golden_command("1007 resp", "01")
    ha = Ha(json.loads(golden.body))
    answer = AdminModeProcessor(CLOCK.monotonic_ms, ha).process_request(
        FakeConnection(), request_of(1007)
    )
    assert answer is not None
    assert (answer.code, answer.remark, dict(answer.ext_fields), answer.body) == (
        golden.code,
        golden.remark,
        dict(golden.ext_fields),
        golden.body,
    )
    with pytest.raises(RequestError, match="cannot get the epochs from process ha"):
        AdminModeProcessor(CLOCK.monotonic_ms, Ha(None)).process_request(
            FakeConnection(), request_of(1007)
        )


@pytest.mark.parametrize("number", ["01", "02"])
def test_a_role_change_is_passed_on_as_it_came(number: str) -> None:
    notice = golden_command("1008 req", number)
    ha = Ha({})
    request = request_of(1008, notice.body, **dict(notice.ext_fields))
    answer = AdminModeProcessor(CLOCK.monotonic_ms, ha).process_request(FakeConnection(), request)
    assert answer is not None
    assert (answer.code, answer.body) == (0, b"")
    (call,) = ha.calls
    assert call == (
        "role_notified",
        {
            "ext_fields": dict(notice.ext_fields),
            "body": notice.body.decode(),
            "remote": FakeConnection().remote_address,
        },
    )


def test_a_role_change_that_process_ha_does_not_hear_is_answered() -> None:
    """The member asks for itself every few seconds."""
    notice = golden_command("1008 req", "01")
    request = request_of(1008, notice.body, **dict(notice.ext_fields))
    answer = AdminModeProcessor(CLOCK.monotonic_ms, Ha(None)).process_request(
        FakeConnection(), request
    )
    assert answer is not None
    assert answer.code == 0


def test_a_role_change_that_cannot_be_read_is_not_passed_on() -> None:
    ha = Ha({})
    with pytest.raises(RequestError):
        AdminModeProcessor(CLOCK.monotonic_ms, ha).process_request(
            FakeConnection(), request_of(1008, masterEpoch="x")
        )
    with pytest.raises(RequestError):
        AdminModeProcessor(CLOCK.monotonic_ms, ha).process_request(
            FakeConnection(), request_of(1008, b"{")
        )
    assert ha.calls == []


def _flood(processor: AdminModeProcessor, count: int) -> None:
    for epoch in range(count):
        request = request_of(1008, masterEpoch=str(epoch), masterAddress="a" * 10_000)
        assert processor.process_request(FakeConnection(), request) is not None


@pytest.mark.parametrize("ha", [None, Ha(None)])
def test_strangers_do_not_fill_the_log(ha: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Everybody may send 1008; what is dropped is said once a minute."""
    processor = AdminModeProcessor(CLOCK.monotonic_ms, ha)
    _flood(processor, 100)
    assert len(caplog.records) == 1
    assert len(caplog.text) < 1_000
    CLOCK.advance(60_000)
    _flood(processor, 100)
    assert len(caplog.records) == 2


def test_one_stranger_at_a_time_waits_for_process_ha() -> None:
    """The others' threads stay free for operators. Of what came meanwhile the newest epoch is
    passed on: the member does not ask because of an older one than its own."""
    told: list[str] = []

    def notify(epoch: int) -> None:
        request = request_of(1008, masterEpoch=str(epoch))
        answer = processor.process_request(FakeConnection(), request)
        assert answer is not None
        assert answer.code == 0

    class Slow(Ha):
        def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
            told.append(arguments["ext_fields"]["masterEpoch"])
            if len(told) == 1:
                for epoch in (2, 7, 3):
                    notify(epoch)
                assert len(told) == 1
            return {}

    processor = AdminModeProcessor(CLOCK.monotonic_ms, Slow({}))  # type: ignore[arg-type]
    notify(1)
    assert told == ["1", "7"]
    notify(4)
    assert told == ["1", "7", "4"]


def test_a_notice_is_not_larger_than_its_group() -> None:
    body = b'{"syncStateSet":[' + b",".join(b"%d" % one for one in range(1, 1_001)) + b"]}"
    assert ask(1008, body).code == 0
    answer = ask(1008, body.ljust((64 << 10) + 1))
    assert answer.code == 1
    assert "no notice of a controller" in str(answer.remark)
