"""fastjson's reader and writers: loose text in, Java's bytes out."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.body.consumer_filter import ConsumerFilterWrapper
from remoting.body.consumer_offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from remoting.body.json_bean import JsonBean
from remoting.body.subscription_group_config import SubscriptionGroupWrapper
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.java_casts import cast_string
from remoting.remoting_serializable import (
    MAX_DEPTH,
    IntKeyMap,
    JavaDouble,
    JsonError,
    LenientReader,
    ObjectKeyMap,
    dumps_java,
    dumps_java_pretty,
    dumps_standard,
    loads_body,
    loads_exact,
    loads_lenient,
)
from tests.support.every_row import every_row

CONFIG_FILES = sorted(Path(__file__).parent.parent.glob("golden/store-G/*/config/*.json*"))
CONFIG_CLASSES: dict[str, type[JsonBean]] = {
    "topics": TopicConfigSerializeWrapper,
    "subscriptionGroup": SubscriptionGroupWrapper,
    "consumerOffset": ConsumerOffsetSerializeWrapper,
    "delayOffset": DelayOffsetSerializeWrapper,
    "consumerFilter": ConsumerFilterWrapper,
}

# -- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,}', {"a": 1}),
        ("{a:1}", {"a": 1}),
        ("{$a_1:1}", {"$a_1": 1}),
        ("{'a':'b'}", {"a": "b"}),
        ('{,,"a":1}', {"a": 1}),
        ("{1:2,-3:4}", {"1": 2, "-3": 4}),
        ("{true:1,null:2}", {"true": 1, "null": 2}),
        ("[1,2,]", [1, 2]),
        ("{a:'\\x41\\v\\7\\'\\/\\u0042'}", {"a": "A\v\x07'/B"}),
        ("{a:'a\tb\nc'}", {"a": "a\tb\nc"}),
        ("{a:'中\\ud83d\\ude00'}", {"a": "中\U0001f600"}),
        (
            "{a:{},b:[],c:null,d:true,e:false,f:-1.5e3}",
            json.loads('{"a":{},"b":[],"c":null,"d":true,"e":false,"f":-1500.0}'),
        ),
        (
            '{{"topic":"T","queueId":0,"brokerName":"b"}:{x:1}}',
            {'{"brokerName":"b","queueId":0,"topic":"T"}': {"x": 1}},
        ),
        ("{{1:{2:3}}:4}", {'{"1":{"2":3}}': 4}),
        (" [ {a : 1} , 2 ] ", [{"a": 1}, 2]),
        ("'x'", "x"),
        ("\ufeff{a:1}", {"a": 1}),
        ("/*a*/{/**/a/***/:/*/*/1// }\n}//b", {"a": 1}),
        ("{a:+1,b:-01,c:1.,d:1.5e+1D,e:7L}", {"a": 1, "b": -1, "c": 1.0, "d": 15.0, "e": 7}),
        ("{a:NaN,b:undefined}", {"a": None, "b": None}),
        ("{a:1}\0\0", {"a": 1}),
        ("{a:'\\ud800x\\udc00\\ud800'}", {"a": "?x??"}),
        ('{"offsetTable":{"T@g":{0:5,1:6}}}', {"offsetTable": {"T@g": {"0": 5, "1": 6}}}),
    ],
)
def test_loose_text(text: str, value: Any) -> None:
    assert loads_lenient(text) == value
    assert loads_lenient(text.encode()) == value
    assert loads_lenient(memoryview(text.encode())) == value


@every_row(
    "text",
    [
        "", " ", "{", "[", "]", "}", ":", ",", "{a}", "{a:}", "{a:1 b:2}", "{a:1]", "[1}",
        "[1 2]", "{[1]:2}", "{a-b:1}", "{a.b:1}", "nul", "Infinity", "{a:.5}", "{a:1M}",
        "{a:0x10}", "{a:1}x", "1 2", "{'a:1}", '{"a:1}', "{a:'\\q'}", "{a:'\\u00'}", "{a:'\\",
        "{a:1e999}", "{{a:1}:2", "{{a:1}2}", "{a:/*c*1}", "{a:1}/*", "{//a:1}", "{}\ufeff",
        "{\0}", "{a:" + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_text_that_is_refused(text: str) -> None:
    with pytest.raises(JsonError):
        loads_lenient(text)


def test_numbers_and_bytes_of_a_body_keep_what_a_cast_needs() -> None:
    assert loads_body(b'{"a":1.50,"b":1e3,c:1e999}') == {
        "a": Decimal("1.50"),
        "b": Decimal("1E+3"),
        "c": Decimal("1E+999"),
    }
    assert loads_body(b'{"a":"\xb1\xea","b":"\xc3\xa9"}') == {"a": "\ufffd\ufffd", "b": "\xe9"}
    for text in (b"{a:1e9999999999999999999}", b'{"a":1e9999999999999999999}'):
        with pytest.raises(JsonError, match="out of range"):
            loads_body(text)


def test_errors_say_where() -> None:
    with pytest.raises(JsonError, match="expected a colon, at character 4 of 6"):
        loads_lenient("{a 1:}")
    with pytest.raises(JsonError, match="not UTF-8"):
        loads_lenient(b"{a:'\xff'}")
    with pytest.raises(JsonError, match="not UTF-8"):
        loads_lenient(b'{"a":"\xff"}')


@pytest.mark.parametrize("opening", ["[", "{a:", '{"a":', "{{", "[{a:"])
@pytest.mark.parametrize("depth", [129, 100_000])
def test_deep_nesting(opening: str, depth: int) -> None:
    before = time.thread_time()
    with pytest.raises(JsonError):
        loads_lenient(opening * depth)
    with pytest.raises(JsonError, match="nested too deep"):
        LenientReader(opening * depth).read()
    assert time.thread_time() - before < 2


def test_depth_that_is_allowed() -> None:
    text = "[" * 128 + "]" * 128
    assert LenientReader(text).read() == json.loads(text)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_text_of_what_is_nested(opening: str) -> None:
    """As deep as the loose reader goes, though msgspec reads and writes more."""

    def nested(depth: int) -> Any:
        closing = "}" if opening.startswith("{") else "]"
        return loads_exact(opening * (depth - 1) + "[1]" + closing * (depth - 1))

    assert cast_string(nested(MAX_DEPTH)).count("1") == 1
    with pytest.raises(JsonError, match="nested too deep"):
        cast_string(nested(MAX_DEPTH + 1))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(value=json_values)
def test_lenient_reader_reads_standard_json(value: Any) -> None:
    assert LenientReader(json.dumps(value)).read() == value
    assert LenientReader(json.dumps(value, ensure_ascii=False, indent=2)).read() == value


@given(text=st.text(alphabet="{}[]:,\"'\\ue0-19.truefalsnNd é\x00", max_size=60))
def test_any_text_gives_a_value_or_a_json_error(text: str) -> None:
    try:
        value = LenientReader(text).read()
    except JsonError:
        return
    json.dumps(value).encode()


@given(value=json_values)
def test_all_forms_mean_the_value(value: Any) -> None:
    assert loads_lenient(dumps_java(value)) == value
    assert loads_lenient(dumps_java_pretty(value)) == value


# -- writing (expected texts by fastjson 1.2.83) -------------------------------------------------


def test_compact_form() -> None:
    tree = {
        "b": IntKeyMap({0: 5, -1: {"x": IntKeyMap({})}}),
        "a": ObjectKeyMap([({"brokerName": "b", "queueId": 1, "topic": "é"}, {"v": 1})]),
        "d": [JavaDouble(1e7), JavaDouble(float("nan")), JavaDouble(0)],
        "e": [[], {}, ObjectKeyMap([]), True, None, "\x0b\x7f"],
    }
    assert dumps_java(tree).decode() == (
        '{"b":{0:5,-1:{"x":{}}},"a":{{"brokerName":"b","queueId":1,"topic":"é"}:{"v":1}},'
        '"d":[1.0E7,null,0.0],"e":[[],{},{},true,null,"\\u000B\\u007F"]}'
    )


def test_pretty_form() -> None:
    tree = {
        "s": ["a", "b"],
        "e": [],
        "m": {},
        "g": IntKeyMap({1: {"x": 1}, 2: {}}),
        "h": IntKeyMap({}),
        "t": {"k": "v"},
    }
    assert dumps_java_pretty(tree).decode() == (
        '{\n\t"s":[\n\t\t"a",\n\t\t"b"\n\t],\n\t"e":[],\n\t"m":{},\n'
        '\t"g":{1:{\n\t\t\t"x":1\n\t\t},2:{}\n\t},\n\t"h":{},\n'
        '\t"t":{\n\t\t"k":"v"\n\t}\n}'
    )


def test_standard_form() -> None:
    tree = {
        "z": IntKeyMap({20: "x", 3: "y"}),
        "a": {"b/": "é", "a": [1.5, None]},
        "l": [2**53, 2**53 - 1, -(2**53), -(2**53) + 1, True],
        "k": ObjectKeyMap([({"q": 1}, 2)]),
        "e": [{}, [], IntKeyMap({})],
    }
    assert dumps_standard(tree).decode() == (
        '{"a":{"a":[1.5,null],"b\\/":"\\u00E9"},"e":[{},[],{}],"k":{"{\\"q\\":1}":2},'
        '"l":["9007199254740992",9007199254740991,"-9007199254740992",-9007199254740991,true],'
        '"z":{"3":"y","20":"x"}}'
    )


def test_a_value_without_json_form() -> None:
    with pytest.raises(TypeError, match="no JSON form for object"):
        dumps_java({"a": object()})


@pytest.mark.skipif(not CONFIG_FILES, reason="tests/golden/store-G is not here")
@every_row("path", CONFIG_FILES)
def test_config_file_of_java_comes_back_byte_for_byte(path: Path) -> None:
    # A slave keeps delayOffset.json in the compact form in which the master sent it.
    text = path.read_bytes()
    bean = CONFIG_CLASSES[path.name.split(".")[0]].from_json_bytes(text)
    if path.name.startswith("delayOffset") and b"\n" not in text:
        assert bean.to_json_bytes() == text
    else:
        assert bean.to_pretty_json_bytes() == text
