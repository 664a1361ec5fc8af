"""conf.java_options: -Dtls.… words of the Java launchers' variables."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from conf.command_line import unused_variables
from conf.config_fields import setting
from conf.config_loader import KeySpace, load_settings
from conf.errors import ConfigError
from conf.java_options import has_other_options, tls_options
from conf.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Two keys of TLS."""

    mode: str = setting("", "mode", key="tls.server.mode")
    path: str = setting("", "key", key="tls.server.keyPath")


def test_the_last_word_of_a_key_counts() -> None:
    environment = {
        "JAVA_OPT": "-Xmx1g -Dtls.server.mode=disabled -Dtls.server.keyPath=/a=b",
        "JAVA_OPT_EXT": "-Dtls.server.mode=permissive\t-Dother=1 -Dtls.server.mode=enforcing",
    }
    assert tls_options(environment) == [
        Setting("tls.server.mode", "enforcing", "environment variable JAVA_OPT_EXT"),
        Setting("tls.server.keyPath", "/a=b", "environment variable JAVA_OPT"),
    ]
    assert tls_options({}) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", False),
        ("-Dtls.a=b -Dtls.c", False),
        ("-Dtls.a=b -Xmx1g", True),
        ("-Drocketmq.namesrv.domain=x", False),
        ("-Drocketmq.namesrv.domain", True),
        ("-Drocketmq.namesrv.domainx=x", True),
    ],
)
def test_other_words(text: str, found: bool) -> None:
    assert has_other_options(text) is found
    assert bool(unused_variables({"JAVA_OPT_EXT": text})) is found


def test_files_win_over_them_and_unknown_ones_stop_the_start() -> None:
    environment = {"JAVA_OPT_EXT": "-Dtls.server.mode=enforcing -Dtls.server.keyPath=/environment"}
    file = [Setting("tls.server.keyPath", "/file", "b.conf:1")]
    loaded = load_settings(KeySpace((Tls,)), environment=environment, file=file)
    assert loaded.values == {"tls.server.mode": "enforcing", "tls.server.keyPath": "/file"}
    with pytest.raises(ConfigError) as caught:
        load_settings(KeySpace((Tls,)), environment={"JAVA_OPT_EXT": "-Dtls.server.mod=x"})
    assert str(caught.value) == (
        "environment variable JAVA_OPT_EXT: unknown key 'tls.server.mod'; did you mean "
        "'tls.server.mode'?"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """One key that is a system property of RocketMQ."""

    splitter: str = setting(",", "splitter", key="rocketmq.broker.multiPathSplitter")


def test_system_properties_of_the_broker() -> None:
    environment = {"JAVA_OPT": "-Drocketmq.broker.multiPathSplitter=; -Drocketmq.other=x"}
    loaded = load_settings(KeySpace((Paths,)), environment=environment)
    assert loaded.values == {"rocketmq.broker.multiPathSplitter": ";"}
    file = [Setting("rocketmq.broker.multiPathSplitter", "|", "b.conf:1")]
    assert load_settings(KeySpace((Paths,)), environment=environment, file=file).values == {
        "rocketmq.broker.multiPathSplitter": "|"
    }
    assert load_settings(KeySpace((Tls,)), environment=environment).values == {}
