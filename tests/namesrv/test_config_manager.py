"""ConfigManager: the allow-list holds, what is refused changes no byte, what is taken is kept."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from conf.config_fields import field_specs
from conf.properties import parse_properties
from namesrv.config_manager import CHANGEABLE_KEYS, ConfigManager
from namesrv.namesrv_config import NamesrvConfig
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

FILE = "# ours\nlistenPort = 9999\n\norderMessageEnable = false\n! end\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "namesrv.properties"
    path.write_text(FILE)
    return path


@pytest.fixture
def manager(path: Path) -> ConfigManager:
    return ConfigManager(NamesrvConfig(config_store_path=str(path)))


PROTECTED = [spec.key for spec in field_specs(NamesrvConfig) if spec.key not in CHANGEABLE_KEYS]


@pytest.mark.parametrize(
    "key",
    [*PROTECTED, "rocketmqHome", "listenPort", "bindAddress", "logDir", "noSuchKey", "__class__"],
)
def test_every_other_key_is_refused_by_name(manager: ConfigManager, path: Path, key: str) -> None:
    before = manager.config
    with pytest.raises(RequestError) as caught:
        manager.update(f"orderMessageEnable=true\n{key}=/tmp/x\n", "10.0.0.9:1")
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert caught.value.remark == (
        f"Can not update config {key!r}: it can only be changed in the settings file before a "
        "start. Changeable: notifyMinBrokerIdChanged, orderMessageEnable, "
        "scanNotActiveBrokerInterval, supportActingMaster"
    )
    assert manager.config is before
    assert path.read_text() == FILE


def test_no_changeable_key_is_a_path_an_address_or_executed() -> None:
    words = ("path", "home", "addr", "dir", "port", "file", "cmd", "class", "black")
    for spec in field_specs(NamesrvConfig):
        if spec.key in CHANGEABLE_KEYS:
            assert spec.kind in (bool, int)
            key = spec.key.lower().removeprefix("support")
            assert not any(word in key for word in words)
    assert {spec.key for spec in field_specs(NamesrvConfig)} >= CHANGEABLE_KEYS


def test_a_change_is_applied_saved_and_logged(
    manager: ConfigManager, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "namesrv.audit"):
        remark = manager.update(
            "orderMessageEnable=TRUE\nscanNotActiveBrokerInterval=500", "10.0.0.9:1"
        )
    assert remark == (
        f"applied now: orderMessageEnable, scanNotActiveBrokerInterval; saved to {path}"
    )
    assert manager.config.order_message_enable
    assert manager.config.scan_not_active_broker_interval == 500
    assert path.read_text() == (
        "# ours\nlistenPort = 9999\n\norderMessageEnable=true\n! end\n"
        "scanNotActiveBrokerInterval=500\n"
    )
    assert path.with_name(path.name + ".bak").read_text() == FILE
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("namesrv.audit", line)
        for line in (
            "10.0.0.9:1 changed orderMessageEnable from 'false' to 'true', applies now",
            "10.0.0.9:1 changed scanNotActiveBrokerInterval from '10000' to '500', applies now",
        )
    ]


def test_a_refused_change_leaves_a_line_too(
    manager: ConfigManager, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RequestError):
        manager.update("kvConfigPath=/etc/passwd", "10.0.0.9:1")
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        (
            "namesrv.audit",
            "10.0.0.9:1 tried to change 'kvConfigPath', refused: it can only be changed in the "
            "settings file before a start",
        )
    ]


def test_the_file_is_made_when_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "new" / "namesrv.properties"
    ConfigManager(NamesrvConfig(config_store_path=str(path))).update("orderMessageEnable=true", "x")
    assert path.read_text() == "orderMessageEnable=true\n"


@pytest.mark.parametrize(
    "text",
    [
        "orderMessageEnable=maybe",
        "scanNotActiveBrokerInterval=0",
        "scanNotActiveBrokerInterval=1x",
        "scanNotActiveBrokerInterval=" + "1" * 5000,
        "=x",
        "a=\\u12",
    ],
)
def test_a_value_that_cannot_be_taken_changes_nothing(
    manager: ConfigManager, path: Path, text: str
) -> None:
    before = manager.config
    with pytest.raises(RequestError):
        manager.update(text, "x")
    assert manager.config is before
    assert path.read_text() == FILE


@pytest.mark.parametrize("listed", ["orderMessageEnable", "a; orderMessageEnable ;b"])
def test_the_operators_black_list_counts_too(path: Path, listed: str) -> None:
    config = NamesrvConfig(config_store_path=str(path), config_black_list=listed)
    with pytest.raises(RequestError, match="NO_PERMISSION"):
        ConfigManager(config).update("orderMessageEnable=true", "x")


def test_an_unwritable_file_refuses_the_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = NamesrvConfig(config_store_path=str(tmp_path / "file" / "namesrv.properties"))
    manager = ConfigManager(config)
    with pytest.raises(RequestError, match="cannot be written"):
        manager.update("orderMessageEnable=true", "x")
    assert not manager.config.order_message_enable


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("", "orderMessageEnable: true\n"),
        ("# c\na: 1", "# c\na: 1\norderMessageEnable: true\n"),
        ("orderMessageEnable:\nb: 04 # x\n", "orderMessageEnable: true\nb: 04 # x\n"),
        ("'orderMessageEnable': false # x\nb: 2\n", "orderMessageEnable: true\nb: 2\n"),
    ],
)
def test_a_yaml_file_is_edited_too(tmp_path: Path, text: str, edited: str) -> None:
    path = tmp_path / "namesrv.yaml"
    path.write_text(text)
    ConfigManager(NamesrvConfig(config_store_path=str(path))).update("orderMessageEnable=true", "x")
    assert path.read_text() == edited


@pytest.mark.parametrize("text", ["{a: 1, orderMessageEnable: false}", "[1]", "\xff"])
def test_a_file_that_cannot_be_edited_refuses_the_change(tmp_path: Path, text: str) -> None:
    path = tmp_path / "namesrv.yaml"
    path.write_bytes(text.encode("latin-1"))
    manager = ConfigManager(NamesrvConfig(config_store_path=str(path)))
    with pytest.raises(RequestError, match="cannot be written"):
        manager.update("orderMessageEnable=true", "x")
    assert path.read_bytes() == text.encode("latin-1")
    assert not manager.config.order_message_enable


def test_an_empty_change_is_no_change(manager: ConfigManager, path: Path) -> None:
    assert manager.update("", "x") == "nothing to change"
    assert path.read_text() == FILE


def test_the_shown_text_is_properties(path: Path) -> None:
    config = NamesrvConfig(config_store_path=str(path), kv_config_path="C:\\kv")
    shown = parse_properties(ConfigManager(config).format_all(), "319")
    assert {s.key: s.text for s in shown}["kvConfigPath"] == "C:\\kv"
