"""Every JSON body of the captures, and one of each other class as the Java classes wrote it.

All come back byte for byte: members are alphabetical, and maps keep the order that was read
(in Java that of its hash maps; topicConfigTable, offsetTable, table and the like are free).
"""

from __future__ import annotations

import pytest

from remoting.body import route
from remoting.body.json_bean import JsonBean
from tests.remoting.golden_bodies import BODIES, JAVA_BODIES, JAVA_CLASSES, JSON_FRAMES
from tests.remoting.golden_frames import GoldenFrame, check_every_frame


def test_no_golden_json_body_is_left_out() -> None:
    assert {(golden.code, golden.side) for golden in JSON_FRAMES} == BODIES.keys()


def test_golden_bodies_come_back_byte_for_byte() -> None:
    check_every_frame(JSON_FRAMES, assert_comes_back)


def assert_comes_back(golden: GoldenFrame) -> None:
    body = golden.command().body
    bean = BODIES[golden.code, golden.side].from_json_bytes(body)
    if golden.code == 105:
        assert isinstance(bean, route.TopicRouteData)
        assert bean.to_standard_json_bytes() == body
    else:
        assert bean.to_json_bytes() == body
    assert type(bean).from_json_bytes(bean.to_json_bytes()) == bean
    assert type(bean).from_json_bytes(bean.to_pretty_json_bytes()) == bean


@pytest.mark.parametrize("cls", JAVA_CLASSES)
def test_body_of_the_java_class_comes_back_byte_for_byte(cls: type[JsonBean]) -> None:
    text = JAVA_BODIES[cls.__name__].encode()
    assert cls.from_json_bytes(text).to_json_bytes() == text


def test_both_forms_of_a_route() -> None:
    bean = route.TopicRouteData.from_json_bytes(JAVA_BODIES["TopicRouteData"].encode())
    standard = JAVA_BODIES["STANDARD"].encode()
    assert bean.to_standard_json_bytes() == standard
    assert route.TopicRouteData.from_json_bytes(standard) == bean
    assert bean.broker_datas[0].broker_addrs[0] == "h:1"
