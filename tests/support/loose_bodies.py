"""Bodies and JSON headers as careless peers write them, and what Java reads in them.

Every case says what the real fastjson (1.2.69 in 4.9.8, 1.2.83 in 5.3.3) made of it:
tests/interop/test_loose_bodies.py asks it again, tests/remoting/body/test_loose_bodies.py holds
our reader to it. Where ours takes more than Java does, the case says so. What fastjson2 (2.0.59 in
5.5.0) reads otherwise stands in tests/golden/fastjson2-5.5.0.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from remoting.body.client_connection import GetConsumerListByGroupResponseBody
from remoting.body.consumer_running_info import ConsumeMessageDirectlyResult
from remoting.body.data_version import DataVersion
from remoting.body.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from remoting.body.json_bean import JsonBean
from remoting.body.kv_table import KVTable
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import QueryCorrectionOffsetBody, ResetOffsetBody
from remoting.body.stats import ConsumeStats
from remoting.body.topic_config import TopicConfig
from remoting.remoting_serializable import loads_lenient

BOTH: Final = frozenset(("4.9.8", "5.3.3"))
REFUSED: Final = "refused"
"""Java throws, or reads nothing at all."""
ABSENT: Final = "absent"
"""The member is null afterwards."""
FASTJSON2: Final = Path(__file__).parents[1] / "golden" / "fastjson2-5.5.0.json"


@cache
def read_by_fastjson2() -> Mapping[str, Any]:
    """Key of a case to what 5.5.0 reads; none where it reads what 5.3.3 does."""
    found: Mapping[str, Any] = json.loads(FASTJSON2.read_text())
    return found


@dataclass(frozen=True, slots=True)
class LooseBody:
    """One text, the member that is looked at, and what it holds after reading."""

    cls: type[JsonBean]
    text: bytes
    member: str
    java: Any
    ours: Any
    lines: frozenset[str] = BOTH
    """The releases that read it so; the other one refuses."""

    @property
    def java_class(self) -> str:
        return self.cls.__name__

    @property
    def key(self) -> str:
        """In the table of fastjson2."""
        return f"{self.java_class}.{self.member} {self.text.decode('latin-1')}"

    def read_by(self, release: str) -> Any:
        """What a release reads."""
        if release == "5.5.0" and self.key in read_by_fastjson2():
            return read_by_fastjson2()[self.key]
        return self.java if _fastjson1(release) in self.lines else REFUSED

    def seen(self, written: bytes) -> Any:
        """What the member holds in a body that was written again."""
        return loads_lenient(written).get(self.member, ABSENT)

    def __str__(self) -> str:
        return f"{self.java_class} {self.text.decode('latin-1')}"


def _fastjson1(release: str) -> str:
    return "4.9.8" if release == "4.9.8" else "5.3.3"


def normalized(value: Any) -> str:
    """A value for comparing: members and items in any order (Java keeps most lists as sets), but
    1 is not true."""
    if isinstance(value, dict):
        return repr(sorted((key, normalized(item)) for key, item in value.items()))
    if isinstance(value, list):
        return repr(sorted(map(normalized, value)))
    return repr(value)


class _Table:
    """Builds cases that differ in one value."""

    def __init__(self, cls: type[JsonBean], member: str, template: str) -> None:
        self._cls, self._member, self._template = cls, member, template
        self.cases: list[LooseBody] = []

    def both(self, java: Any, *values: str, lines: frozenset[str] = BOTH) -> _Table:
        """Java and ours read `java` in each of these values."""
        for value in values:
            text = self._template.replace("%", value).encode()
            self.cases.append(LooseBody(self._cls, text, self._member, java, java, lines))
        return self

    def ours(self, java: Any, ours: Any, *values: str) -> _Table:
        """Java reads `java`, ours reads `ours`."""
        for value in values:
            text = self._template.replace("%", value).encode()
            self.cases.append(LooseBody(self._cls, text, self._member, java, ours))
        return self


ENUMS: Final = (
    _Table(ConsumerData, "messageModel", '{"groupName":"g","messageModel":%}')
    .both("CLUSTERING", '"CLUSTERING"', "1", "+1", "01", " 1 ", '"clustering"', '"Clustering"')
    .both("BROADCASTING", '"BROADCASTING"', "0", "'broadcasting'")
    .both(ABSENT, "null", '""', '"1"', '"NONSENSE"', '"CLUSTERING "', '"Cluster-ing"')
    .ours(REFUSED, ABSENT, "NaN")
    .both(REFUSED, "2", "-1", "1.0", "true", "{}", "[]", '["CLUSTERING"]', "CLUSTERING")
    .both(REFUSED, "5000000000")
).cases + (
    _Table(ConsumerData, "consumeType", '{"groupName":"g","consumeType":%}')
    .both("CONSUME_ACTIVELY", "0", '"consume_actively"')
    .both("CONSUME_PASSIVELY", "1")
    .both(ABSENT, '"CONSUME-PASSIVELY"', '"CONSUMEPASSIVELY"')
    .both("CONSUME_POP", "2", lines=frozenset(("5.3.3",)))
).cases  # fmt: skip

ORDINALS: Final = [
    case
    for cls, member, names in (
        (
            ConsumerData,
            "consumeFromWhere",
            (
                "CONSUME_FROM_LAST_OFFSET",
                "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
                "CONSUME_FROM_MIN_OFFSET",
                "CONSUME_FROM_MAX_OFFSET",
                "CONSUME_FROM_FIRST_OFFSET",
                "CONSUME_FROM_TIMESTAMP",
            ),
        ),
        (
            ConsumeMessageDirectlyResult,
            "consumeResult",
            (
                "CR_SUCCESS",
                "CR_LATER",
                "CR_ROLLBACK",
                "CR_COMMIT",
                "CR_THROW_EXCEPTION",
                "CR_RETURN_NULL",
            ),
        ),
        (TopicConfig, "topicFilterType", ("SINGLE_TAG", "MULTI_TAG")),
    )
    for number, name in enumerate(names)
    for case in _Table(cls, member, f'{{"groupName":"g","topicName":"T","{member}":%}}')
    .both(name, str(number), f'"{name}"', f'"{name.lower()}"')
    .cases
] + (
    _Table(TopicConfig, "topicFilterType", '{"topicName":"T","topicFilterType":%}')
    .ours(ABSENT, "SINGLE_TAG", '"NONSENSE"', "null", '"1"', '""')
    .both(REFUSED, "2")
).cases  # fmt: skip

BOOLEANS: Final = (
    _Table(ConsumerData, "unitMode", '{"groupName":"g","unitMode":%}')
    .both(True, "true", '"true"', '"TRUE"', '"tRuE"', '"1"', '"Y"', '"y"', '"T"', "1", "1.0", "1.5")
    .both(False, "false", '"false"', '"FALSE"', '"0"', '"N"', '"F"', '"f"', "0", "2", "-1", "0.0")
    .both(False, "null", '""', '"null"', '"NULL"', "undefined")
    .both(REFUSED, '"yes"', '"no"', '"on"', '"2"', "{}", "[]", "[true]", "12345678901", "True")
    .ours(REFUSED, True, '"t"')
    .ours(REFUSED, False, '"n"')
).cases

STRINGS: Final = (
    _Table(ConsumerData, "groupName", '{"groupName":%}')
    .both("5", "5", '"5"', "'5'", "5L")
    .both("5.50", "5.50")
    .both("1E+3", "1e3")
    .both("true", "true")
    .both("12345678901234567890123", "12345678901234567890123")
    .both('{"b":1}', '{"b":1}', "{ b : 1 }", '{"b":1,}')
    .both("[1,2]", "[1, 2]")
    .both("", '""')
    .both("aA'/b", '"a\\x41\\u0027\\/b"', "'a\\x41\\'/b'")
    .both("a?b", '"a\\ud800b"')
    .both("\U0001f600", '"\\ud83d\\ude00"', '"\U0001f600"')
    .both(REFUSED, "g", '"a\\qb"', '"a\\u00zz"', '"a')
).cases

INTEGERS: Final = (
    _Table(MessageQueue, "queueId", '{"topic":"T","brokerName":"b","queueId":%}')
    .both(5, "5", '"5"', '"+5"', '"05"', '"5.0"', "5.0", "5.7", "5L", "5D", "5.5F", "'5'", '"５"')
    .both(-5, '"-5"', "-5.7")
    .both(1000, '"1,000"', "1e3", "1E+3")
    .both(1, "true", "1.")
    .both(0, "false", '""', '"null"', '"NULL"', "null", "NaN", "undefined")
    .both(2**31 - 1, "2147483647", '"2147483647"')
    .both(-(2**31), "-2147483648")
    .both(REFUSED, '"5.7"', '" 5"', '"0x10"', '"1e2"', '"x"', '"true"', '"1_000"', ".5", "0x10")
    .both(REFUSED, "--5", "2147483648", '"2147483648"', "99999999999999999999999", "{}", "[]")
    .both(REFUSED, "[5]")
    .ours(-(2**31), REFUSED, "2147483648.0")
).cases + (
    _Table(DataVersion, "counter", '{"timestamp":7,"counter":%}')
    .both(5, "5", '"5"', "5.9", '"+5"')
    .ours(REFUSED, 5, '"5.0"')
    .both(2**63 - 1, "9223372036854775807", '"9223372036854775807"')
    .both(-(2**63), "-9223372036854775808")
    .both(1000, "1e3", '"1,000"')
    .both(1, "true", lines=frozenset(("5.3.3",)))
    .ours(ABSENT, 0, "null", '""', '"null"')
    .both(REFUSED, "9223372036854775808", '"9223372036854775808"', '"x"', "{}", "[]")
).cases  # fmt: skip

DOUBLES: Final = (
    _Table(ConsumeStats, "consumeTps", '{"offsetTable":{},"consumeTps":%}')
    .both(1.5, "1.5", '"1.5"', '" 1.5 "', "1.5D")
    .both(1000.5, '"1,000.5"', "1000.5")
    .both(1.0, "1", '"1"', "1.", '"1."')
    .both(1000.0, '"1e3"', "1e3")
    .both(0.5, '".5"')
    .both(0.0, "null", '""', '"null"', "NaN")
    .both(1.0, "true", lines=frozenset(("5.3.3",)))
    .both(REFUSED, '"x"', "[]", "{}")
    .ours(None, 0.0, "1e400", '"NaN"', '"Infinity"')
    .ours(8.0, REFUSED, '"0x1p3"')
    .ours(1.5, REFUSED, '"1.5d"')
).cases

LISTS: Final = (
    _Table(
        GetConsumerListByGroupResponseBody, "consumerIdList", '{"consumerIdList":%}'
    )
    .both(["a", "1", "true", "1.50", '{"b":1}', '["x"]'], '["a",1,true,1.50,{"b":1},["x"]]')
    .both(["a", "b"], '["a","b",]', '[,"a",,"b"]', "['a',/**/'b'//\n]")
    .both(["a"], '"a"')
    .both(["5"], "5")
    .both(["{}"], "{}")
    .ours(["a", None], ["a"], '["a",null]')
    .ours(["a", "b"], REFUSED, '["a" "b"]')
    .ours(ABSENT, [], "null", '""')
    .both(REFUSED, "[a]")
).cases + (
    _Table(SubscriptionData, "codeSet", '{"topic":"T","subVersion":5,"codeSet":%}')
    .both([1, 2], '["1",2]', "[1,,2,]", "[true,2.9]")
    .ours([None, 1], [1], '[1,null,""]')
    .ours(REFUSED, [1], "1", '"1"')
    .both(REFUSED, '["x"]', "[{}]")
).cases  # fmt: skip

BEANS: Final = (
    _Table(HeartbeatData, "producerDataSet", '{"clientID":"c","producerDataSet":%}')
    .both([{"groupName": "g"}], '[{"groupName":"g"}]', '{"groupName":"g"}', "[{group_name:'g'},]")
    .both([], "[]")
    .ours([None], [], "[null]", '[""]', "[[]]")
    .ours(ABSENT, [], "null")
    .both(REFUSED, "5", "[5]", '["x"]', '"x"')
).cases

MAPS: Final = (
    _Table(KVTable, "table", '{"table":%}')
    .both({"a": "b"}, '{"a":"b"}', "{a:'b'}", '{,"a":"b",}', '{/**/"a"/**/:/**/"b"/**/}')
    .both({"a": "5"}, '{"a":5}', "{a:5L}")
    .both({"a": "5.50", "b": "true"}, '{"a":5.50,"b":true}')
    .both({"a": '{"b":1}'}, '{"a":{"b":1}}')
    .both({"a": "y"}, '{"a":"x","a":"y"}')
    .both({}, '{"a":null}', "{}", '{"a":undefined}')
    .both({"true": "x"}, '{true:"x"}')
    .both({"$ref": "x"}, '{"$ref":"x"}')
    .ours(ABSENT, {}, "null")
    .ours(REFUSED, {"5": "x"}, '{5:"x"}')
    .both(REFUSED, "[]", '"x"', "5", '{"a":x}')
).cases + (
    _Table(QueryCorrectionOffsetBody, "correctionOffsets", '{"correctionOffsets":%}')
    .both({"0": 5}, "{0:5}", '{"0":5}', '{"0":"5"}', "{ '0' : 5.9 , }", '{"+00":5}', "{0:6,0:5}")
    .both({"-1": 5}, "{-1:5}", '{"-1":5}')
    .both({}, '{"0":null}', '{"0":""}', "{}")
    .ours({"1": 5}, REFUSED, "{1.5:5}")
    .ours({"null": 5}, {}, '{"":5}', "{null:5}")
    .both(REFUSED, '{"x":5}', '{"1.5":5}', "{4294967296:5}", '{"0":{}}', "[]", '"x"')
).cases + (
    _Table(ResetOffsetBody, "offsetTable", '{"offsetTable":%}')
    .both(
        {'{"brokerName":"b","queueId":1,"topic":"T"}': 5},
        '{{"topic":"T","brokerName":"b","queueId":1}:5}',
        '{ { topic : "T" , brokerName : "b" , "queueId" : "1" , x : [1] } : "5" , }',
        '{"{\\"topic\\":\\"T\\",\\"brokerName\\":\\"b\\",\\"queueId\\":1}":5}',
        "{\"{topic:'T',broker_name:'b',queueId:1}\":5}",
    )
    .ours({"null": 5}, {}, '{"":5}')
    .both(REFUSED, '{"x":5}', "[]", "{5:5}")
).cases  # fmt: skip

NAMES: Final = (
    _Table(ConsumerData, "groupName", "{%}")
    .both(
        "g",
        *("GroupName:'g'", 'groupname:"g"', '"group_name":"g"', '"group-name":"g"'),
        *('"GROUP_NAME":"g"', '"group\\u004eame":"g"', "'groupName' : 'g'"),
        *('"groupName":"g","GroupName":"h"', '"x":{y:1,2:3,{z:1}:[4]},groupName:"g",$ref:"$"'),
    )
    .ours(ABSENT, REFUSED, '" groupName":"g"')
).cases + (
    _Table(ConsumerData, "unitMode", '{"groupName":"g",%}')
    .both(True, '"isUnitMode":true', '"is_unit_mode":true')
).cases  # fmt: skip

TEXTS: Final = (
    _Table(ConsumerData, "groupName", "%")
    .both(
        "g",
        *('{"groupName":"g",}', '{,"groupName":"g"}', '{"groupName":"g",,"unitMode":true}'),
        *('/* c */{"groupName":"g"}/* d */', '{// c\n"groupName":"g"}', '{"groupName":"g"}\n'),
        *('\ufeff{"groupName":"g"}', '{"groupName":"g"}\0', '\t{\r\n"groupName"\f:\b"g" }'),
    )
    .ours("g", REFUSED, '{"groupName":"g";"unitMode":true}')
    .both(REFUSED, '{"groupName":"g"', '{"groupName":"g', '{"groupName":', "{", "", " ", "null")
    .both(REFUSED, '{"groupName":"g"}}', '{"groupName":"g"} x', '{"groupName"="g"}', "5", '"x"')
    .both(REFUSED, '{"groupName":"g" "unitMode":true}', '[{"groupName":"g"}]', "[]")
).cases

UNDECODABLE: Final = LooseBody(
    ConsumerData,
    b'{"groupName":"a\xffb"}',
    "groupName",
    "a\ufffdb",
    "a\ufffdb",
    frozenset(("4.9.8",)),
)

CASES: Final = [
    *(*ENUMS, *ORDINALS, *BOOLEANS, *STRINGS, *INTEGERS, *DOUBLES, *LISTS, *BEANS, *MAPS),
    *(*NAMES, *TEXTS, UNDECODABLE),
]


@dataclass(frozen=True, slots=True)
class LooseHeader:
    """One JSON header, and a member of Java's RemotingCommand after reading it."""

    text: bytes
    member: str
    java: Any
    ours: Any
    lines: frozenset[str] = BOTH

    @property
    def key(self) -> str:
        """In the table of fastjson2."""
        return f"RemotingCommand.{self.member} {self.text.decode('latin-1')}"

    def read_by(self, release: str) -> Any:
        """What a release reads; None: that is not said."""
        if release == "5.5.0" and self.key in read_by_fastjson2():
            return read_by_fastjson2()[self.key]
        return self.java if _fastjson1(release) in self.lines else None

    def __str__(self) -> str:
        return self.text.decode()


def _headers(
    member: str, java: Any, *values: str, ours: Any = None, lines: frozenset[str] = BOTH
) -> list[LooseHeader]:
    texts = (f'{{"opaque":1,"{member}":{value}}}'.encode() for value in values)
    return [
        LooseHeader(text, member, java, java if ours is None else ours, lines) for text in texts
    ]


HEADERS: Final = [
    *_headers("code", 10, "10", '"10"', "10.7", "+10", "010", '"10.0"', '"1,0"', "/**/10//\n"),
    *_headers("code", 0, "null", '""', '"null"', "NaN"),
    *_headers("code", 1, "true"),
    *_headers("code", REFUSED, '"x"', "2147483648", "{}", "[]", '"10.5"'),
    *_headers("language", "CPP", '"CPP"', "1", '"cpp"', '"Cpp"', "'CPP'"),
    *_headers("language", ABSENT, "null", '"1"', '"COBOL"', '""', ours="OTHER"),
    *_headers("language", REFUSED, "99", "{}", ours="OTHER"),
    *_headers("language", "NODE_JS", '"NODE_JS"', "13", lines=frozenset(("5.3.3",))),
    *_headers("version", 409, "409", '"409"'),
    *_headers("flag", 2, "2", '"2"', "2.0"),
    *_headers("remark", "5.50", "5.50", '"5.50"'),
    *_headers("remark", '{"a":1}', "{a:1}"),
    *_headers("remark", ABSENT, "null"),
    *_headers(
        "extFields",
        {"a": "5", "c": "true", "d": '{"x":1}', "e": "[1]", "f": "1.50"},
        '{"a":5,"b":null,"c":true,"d":{"x":1},"e":[1],"f":1.50}',
    ),
    *_headers("extFields", {"a": "?"}, '{"a":"\\ud800"}', "{a:'\\ud800',}"),
    *_headers("extFields", ABSENT, "null"),
    *_headers("extFields", REFUSED, "[]", '"x"', "5"),
    *_headers("extFields", REFUSED, '{5:"x"}', ours={"5": "x"}),
]
