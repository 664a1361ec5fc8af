"""conf.tls_file: the file of TLS settings over all others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from conf.config_fields import setting
from conf.config_loader import KeySpace, LoadedSettings
from conf.errors import ConfigError
from conf.tls_file import with_tls_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Some keys of TLS."""

    mode: str = setting("", "mode", key="tls.server.mode")
    test: bool = setting(True, "test", key="tls.test.mode.enable")


KEYS = KeySpace((Tls,))


def given(path: Path) -> LoadedSettings:
    values = {"tls.config.file": str(path), "tls.test.mode.enable": "true", "listenPort": "1"}
    return LoadedSettings(values, dict.fromkeys(values, "b.conf:1"), ("earlier",))


def test_the_default_file_need_not_be_there(tmp_path: Path) -> None:
    loaded = LoadedSettings({"listenPort": "1"})
    assert with_tls_file(KEYS, loaded, str(tmp_path / "none")) is loaded


def test_the_default_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.test.mode.enable=false\n")
    assert with_tls_file(KEYS, LoadedSettings(), str(path)).values == {
        "tls.test.mode.enable": "false"
    }


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ConfigError) as caught:
        with_tls_file(KEYS, given(path), "/unused")
    assert str(caught.value) == (
        f"b.conf:1: tls.config.file = {path}: no such file; create it or remove the key"
    )


def test_its_keys_win(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("# TLS\ntls.test.mode.enable = false\n")
    loaded = with_tls_file(KEYS, given(path), "/unused")
    assert loaded.values["tls.test.mode.enable"] == "false"
    assert loaded.values["listenPort"] == "1"
    assert loaded.sources["tls.test.mode.enable"] == f"{path}:2"
    assert loaded.warnings == ("earlier",)


def test_whether_tls_is_used_is_not_said_there(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.mode=enforcing\ntls.enable=true\ntls.config.file=/other\n")
    loaded = with_tls_file(KEYS, given(path), "/unused")
    assert loaded.values == given(path).values
    rest = (
        "has no effect in this file, as in RocketMQ; set it in the program's own settings file "
        "or with -D in JAVA_OPT_EXT"
    )
    keys = ("tls.server.mode", "tls.enable", "tls.config.file")
    told = [f"{path}:{line}: {key} {rest}" for line, key in enumerate(keys, 1)]
    assert loaded.warnings == ("earlier", *told)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tls.test.mode.enabled=true", "unknown key 'tls.test.mode.enabled'; did you mean"),
        ("tls.test.mode.enable=maybe", "tls.test.mode.enable = maybe: expected true or false"),
    ],
)
def test_what_is_wrong_in_it_names_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(f"\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        with_tls_file(KEYS, given(path), "/unused")
    assert str(caught.value).startswith(f"{path}:2: {problem}")
