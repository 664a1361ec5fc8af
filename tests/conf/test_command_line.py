"""conf.command_line: the flags as the original's parser takes them."""

from __future__ import annotations

import pytest

from conf.command_line import (
    CONFIG_FILE,
    HELP,
    NAMESRV_ADDR,
    PRINT_ALL,
    PRINT_IMPORTANT,
    parse_command_line,
    require_addresses,
    require_home,
    unused_variables,
    usage,
)
from conf.errors import StartupExitError

OPTIONS = (NAMESRV_ADDR, CONFIG_FILE, PRINT_ALL, PRINT_IMPORTANT, HELP)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], {}),
        (["-n", "a:1"], {"namesrvAddr": "a:1"}),
        (["-na:1"], {"namesrvAddr": "a:1"}),
        (["--namesrvAddr", "a:1"], {"namesrvAddr": "a:1"}),
        (["--namesrvAddr=a:1", "-c", "f"], {"namesrvAddr": "a:1", "configFile": "f"}),
        (["-pm"], {"printConfigItem": "", "printImportantConfig": ""}),
    ],
)
def test_forms_of_flags(arguments: list[str], given: dict[str, str]) -> None:
    assert parse_command_line("mqbroker", arguments, OPTIONS) == given


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-x"], "option -x not recognized"),
        (["--enable-proxy"], "option --enable-proxy not recognized"),
        (["-n"], "option -n requires argument"),
        (["autoCreateTopicEnable=true"], "is not an option"),
    ],
)
def test_misuse_gives_usage_and_1(arguments: list[str], reason: str) -> None:
    with pytest.raises(StartupExitError, match=reason) as caught:
        parse_command_line("mqbroker", arguments, OPTIONS)
    assert caught.value.exit_code == 1
    assert "usage: mqbroker [-c <arg>] [-h] [-m] [-n <arg>] [-p]" in caught.value.text


def test_help_gives_usage_and_0() -> None:
    with pytest.raises(StartupExitError) as caught:
        parse_command_line("mqbroker", ["-h", "-p"], OPTIONS)
    assert (caught.value.exit_code, caught.value.text) == (0, usage("mqbroker", OPTIONS))
    assert caught.value.to_stdout
    assert " -m,--printImportantConfig   Print important config item" in caught.value.text


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("a:1;b:65535;", ("a:1", "b:65535")),
        ("a:1; b:2", ("a:1", "b:2")),
        ("[::1]:9876", ("[::1]:9876",)),
    ],
)
def test_addresses(text: str, items: tuple[str, ...]) -> None:
    assert require_addresses(text) == items


@pytest.mark.parametrize(
    "text", ["a", "a:", ":1", "a:x", "a:1;;b:2", "a:65536", "", ";", "a:1,b:2"]
)
def test_bad_addresses_give_the_words_and_253(text: str) -> None:
    with pytest.raises(StartupExitError) as caught:
        require_addresses(text)
    assert caught.value.exit_code == 253
    assert caught.value.text == (
        f"The Name Server Address[{text}] illegal, please set it as follows,"
        ' "127.0.0.1:9876;192.168.0.1:9876"'
    )


def test_home_is_required() -> None:
    assert require_home("/x") == "/x"
    with pytest.raises(StartupExitError, match="Please set the ROCKETMQ_HOME variable") as caught:
        require_home(None)
    assert caught.value.exit_code == 254


def test_java_variables_are_named() -> None:
    assert unused_variables({"PATH": "x"}) == ()
    (warning,) = unused_variables({"JAVA_OPT_EXT": "-Xmx4g", "JAVA_HOME": "/jdk", "JAVA_OPT": ""})
    assert warning.endswith("JAVA_HOME, JAVA_OPT_EXT")
