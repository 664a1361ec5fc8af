"""conf.settings_change: what a request may ask for, and the lines it leaves."""

from __future__ import annotations

import pytest

from conf.errors import ConfigError
from conf.settings_change import AuditLog, read_changes


def test_the_last_value_of_a_key_counts() -> None:
    text = "# asked for\na = 1 \nb: x\\u0041\na=2\n"
    assert read_changes(text, "request 25 from x") == {"a": "2", "b": "xA"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("=x", "not properties text: request 25 from x:1: the key is missing before '='"),
        ("a=\\u12", "not properties text: request 25 from x:1: bad \\u escape '\\\\u12'"),
        (
            "".join(f"k{number}=1\n" for number in range(65)),
            "request 25 from x: 65 settings in one request, the limit is 64; split it",
        ),
        ("#\n" * 4097, "request 25 from x: 4097 lines, the limit is 4096; split it"),
        ("#\r" * 4097, "request 25 from x: 4097 lines, the limit is 4096; split it"),
        (
            "\n" * 250_000,
            "request 25 from x: 250000 lines, the limit is 4096; split it",
        ),
        (
            "a=1\nb=" + "1" * 1025,
            "request 25 from x: the value of 'b' has 1025 characters, the limit is 1024",
        ),
    ],
)
def test_what_nobody_means(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_changes(text, "request 25 from x")
    assert str(caught.value) == message


def test_as_many_and_as_long_as_allowed() -> None:
    text = "".join(f"k{number}={'1' * 1024}\n" for number in range(64))
    assert len(read_changes(text, "x")) == 64


def test_the_lines_of_an_audit(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog("broker")
    audit.changed("10.0.0.9:1", "brokerPermission", "6", "4", "now")
    audit.refused("10.0.0.9:1", "k" * 100, "no")
    shown = repr("k" * 100)[:80]
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "broker.audit",
            "WARNING",
            "10.0.0.9:1 changed brokerPermission from '6' to '4', applies now",
        ),
        ("broker.audit", "WARNING", f"10.0.0.9:1 tried to change {shown}, refused: no"),
    ]
