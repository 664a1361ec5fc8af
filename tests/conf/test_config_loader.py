"""conf.config_loader: layers, types, bounds, unknown and ignored keys."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest

from conf.config_fields import setting
from conf.config_loader import KeySpace, build, describe, load_settings, update
from conf.errors import ConfigError
from conf.setting import Setting


class Role(enum.Enum):
    """As BrokerRole."""

    MASTER = 1
    SLAVE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """A room's settings."""

    listen_port: int = setting(8888, "port", ge=0, le=65535)
    home: str | None = setting(None, "h", env="MQ_HOME")
    role: Role = setting(Role.MASTER, "r", important=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """Another room's settings, which share a key."""

    listen_port: int = setting(1, "port")
    enabled: bool = setting(True, "e")
    ratio: float = setting(0.5, "r", unit="share")
    size: int = setting(7, "s", unit="bytes", key="mappedFileSizeCommitLog")


KEYS = KeySpace((First, Second), frozenset({"javaOnly", "enableDLegerCommitLog"}))


def at(line: int, key: str, text: str) -> Setting:
    return Setting(key, text, f"x.conf:{line}")


def test_later_layers_win_and_a_shared_key_sets_both() -> None:
    loaded = load_settings(
        KEYS,
        defaults={"listenPort": "10911", "home": "/d"},
        environment={"MQ_HOME": "/env", "OTHER": "x"},
        file=[at(1, "listenPort", "5"), at(2, "enabled", "FALSE"), at(3, "role", "SLAVE")],
        command_line=[Setting("listenPort", "6", "option -l")],
    )
    first, second = build(First, loaded.values), build(Second, loaded.values)
    assert (first.listen_port, second.listen_port) == (6, 6)
    assert (first.home, first.role, second.enabled) == ("/env", Role.SLAVE, False)
    assert loaded.sources["home"] == "environment variable MQ_HOME"
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        (
            "listenPort",
            "10o11",
            r"x.conf:4: listenPort = 10o11: expected a whole number in 0..65535",
        ),
        ("listenPort", "70000", "in 0..65535"),
        ("listenPort", "1_000", "a whole number"),
        ("listenPort", "", "a whole number"),
        ("enabled", "yes", "expected true or false"),
        ("role", "slave", "expected one of MASTER, SLAVE"),
        ("ratio", "x", r"expected a number \(share\)"),
    ],
)
def test_bad_value_names_file_line_key_and_expectation(key: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_settings(KEYS, file=[at(4, key, text)])


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(KEYS, file=[at(1, "enabled", "1"), at(2, "listenPrt", "1")])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("listenPrt", "'listenPort'"),
        ("LISTENPORT", "'listenPort'"),
        ("javaOny", "'javaOnly'"),
        ("mapedFileSizeCommitLg", "'mapedFileSizeCommitLog'"),
        ("zzz", "-p prints every key"),
    ],
)
def test_unknown_key_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"x.conf:9: unknown key '{key}'; .*{nearest}"):
        load_settings(KEYS, file=[at(9, key, "1")])


def test_ignored_keys_warn_once_together() -> None:
    loaded = load_settings(
        KEYS, file=[at(1, "javaOnly", "1"), at(2, "enableDLegerCommitLog", "false")]
    )
    assert loaded.values == {}
    (warning,) = loaded.warnings
    assert "javaOnly (x.conf:1), enableDLegerCommitLog (x.conf:2)" in warning


def test_a_key_that_must_not_be_ignored_stops() -> None:
    refusal = (
        r"x\.conf:2: enableDLegerCommitLog = true: DLedger is not .*controller mode "
        r".*bin/mqadopt"
    )
    with pytest.raises(ConfigError, match=refusal):
        load_settings(KEYS, file=[at(2, "enableDLegerCommitLog", "true")])


def test_alias_sets_the_key_and_must_not_contradict_it() -> None:
    alias, key = "mapedFileSizeCommitLog", "mappedFileSizeCommitLog"
    assert load_settings(KEYS, file=[at(1, alias, "9")]).values == {key: "9"}
    assert load_settings(KEYS, file=[at(1, alias, "9"), at(2, key, "9")]).values == {key: "9"}
    with pytest.raises(ConfigError, match=r"x\.conf:2: .* contradicts .* at x\.conf:1"):
        load_settings(KEYS, file=[at(1, alias, "9"), at(2, key, "8")])


def test_describe_reads_back() -> None:
    first = First(role=Role.SLAVE, home=None)
    assert describe(first) == {"listenPort": "8888", "home": "", "role": "SLAVE"}
    assert build(First, describe(first)) == first
    assert build(Second, describe(Second())) == Second()
    assert describe(first, Second(), important_only=True) == {"role": "SLAVE"}


def test_update_replaces_what_the_class_declares() -> None:
    changes = {"listenPort": "9", "enabled": "false"}
    assert update(First(), changes, "request 25") == First(listen_port=9)
    with pytest.raises(ConfigError, match="request 25: listenPort = x: expected"):
        update(First(), {"listenPort": "x"}, "request 25")
