"""Codes, languages and versions: the numbers that peers decide by."""

from __future__ import annotations

import pytest

from remoting.language_code import LanguageCode, language_code, language_name
from remoting.mq_version import (
    HIGHER_VERSION,
    VERSION_NAMES,
    VERSION_ORDINALS,
    version_name,
)
from remoting.request_code import RequestCode, request_code_name
from remoting.response_code import RESPONSE_CODE_NAMES_5X, ResponseCode, response_code_name
from tests.remoting.golden_frames import golden_frames


def test_golden_directories_are_named_as_our_codes() -> None:
    for golden in golden_frames():
        code, _, name = golden.path.parent.name.partition("-")
        assert RequestCode(int(code)).name == name


def test_names_of_codes() -> None:
    assert request_code_name(310) == "SEND_MESSAGE_V2"
    assert request_code_name(200050) == "POP_MESSAGE"
    assert request_code_name(4711) == "4711"
    assert response_code_name(21) == "PULL_OFFSET_MOVED"
    assert response_code_name(4711) == "4711"
    assert RESPONSE_CODE_NAMES_5X[209] == "POLLING_FULL"
    assert ResponseCode(209) is ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED


def test_no_code_is_given_twice() -> None:
    # An IntEnum makes a second name for a number an alias, silently.
    assert len(RequestCode.__members__) == len(list(RequestCode))
    assert len(ResponseCode.__members__) == len(list(ResponseCode))


def test_languages() -> None:
    assert [language_name(code) for code in LanguageCode] == [code.name for code in LanguageCode]
    assert language_code("GO") == 9
    assert language_code("COBOL") == LanguageCode.OTHER
    assert language_name(-1) == language_name(99) == "OTHER"


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        ("V3_0_7_SNAPSHOT", 28), ("V3_0_11", 37), ("V3_1_8_SNAPSHOT", 62), ("V3_4_9", 121),
        ("V4_0_0", 213), ("V4_1_0_SNAPSHOT", 232), ("V4_2_0", 253), ("V4_3_0", 273),
        ("V4_7_1", 355), ("V4_8_0", 373), ("V4_9_3", 399), ("V4_9_4", 401), ("V4_9_8", 409),
        ("V5_0_0", 413), ("V5_1_0", 433), ("V5_2_0", 453), ("V5_3_1", 475), ("V5_3_3", 479),
        ("HIGHER_VERSION", 612),
    ],
)  # fmt: skip
def test_versions(name: str, ordinal: int) -> None:
    assert VERSION_ORDINALS[name] == ordinal
    assert version_name(ordinal) == name


def test_unknown_versions() -> None:
    assert version_name(613) == version_name(-1) == "HIGHER_VERSION"
    assert len(VERSION_NAMES) == HIGHER_VERSION + 1 == len(VERSION_ORDINALS)
