"""What twins are asked: requests with anything in their headers that a peer can write there.

An Ask is a request as data; `frame` makes its bytes. Fields may name what is known only when it is
sent ("@HALF"): Twins say what (test_twins.py).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from broker.send.send_header import V1_NAMES
from remoting.body.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_code import RequestCode as Code
from remoting.signature import RequestSigner
from store.batch_codec import BATCH_ITEM_HEAD
from store.message_properties import PROPERTIES_LIMIT
from store.reserved_properties import RESERVED

MOST_BODY: Final = 4_096
"""maxMessageSize of the twins."""
_LONG_NAMES: Final = {short: name for name, short in V1_NAMES.items()}
Fields = dict[str, Any]
"""By name; a value is what json writes."""


@dataclass(frozen=True)
class Ask:
    """A request; see the module."""

    code: int
    fields: Fields
    body: bytes = b""
    flag: int = 0
    binary: bool = False
    version: int = 409
    signer: str = "member"
    form: str = "plain"
    """Of the JSON header: plain, code last, spaces, twice (another code comes first)."""

    def frame(
        self, opaque: int, known: Mapping[str, str], signers: Mapping[str, RequestSigner]
    ) -> bytes:
        """known: what fields name. signers: by name; without them nothing is signed."""
        fields = {name: _told(value, known) for name, value in self.fields.items()}
        signer = signers.get(self.signer)
        if signer is not None:
            command = RemotingCommand.request(self.code, _texts(fields), self.body)
            signer.sign(command)
            fields = dict(command.ext_fields)
        if self.binary and self.code < 1 << 15:
            return self._binary(opaque, _texts(fields))
        header = self._header(opaque, fields)
        return (
            struct.pack(">ii", 4 + len(header) + len(self.body), len(header)) + header + self.body
        )

    def _binary(self, opaque: int, fields: dict[str, str]) -> bytes:
        command = RemotingCommand.request(self.code, fields, self.body)
        command.opaque, command.flag, command.version = opaque, self.flag, self.version
        command.serialize_type = SerializeType.ROCKETMQ
        return encode_command(command)

    def _header(self, opaque: int, fields: Fields) -> bytes:
        rest = {
            "extFields": fields,
            "flag": self.flag,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": self.version,
        }
        whole: Fields = {"code": self.code, **rest}
        if self.form == "code last":
            whole = {**rest, "code": self.code}
        if self.form == "spaces":
            return json.dumps(whole).encode()
        text = json.dumps(whole, separators=(",", ":"), ensure_ascii=self.form == "ascii")
        if self.form == "twice":
            other = Code.PULL_MESSAGE if self.code == Code.SEND_MESSAGE_V2 else Code.SEND_MESSAGE_V2
            text = f'{text[:-1]},"code":{int(other)}}}'
        return text.encode("utf-8", "surrogatepass")


def _told(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, str) and "@" in value:
        for name, text in known.items():
            value = value.replace(f"@{name}", text)
    return value


def _texts(fields: Fields) -> dict[str, str]:
    """As a binary header has them, and one that is signed."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in fields.items()
        if value is not None
    }


# -- values ----------------------------------------------------------------------------------------

NUMBERS: Final = (
    *("0", "1", "3", "00", "+1", "-0", "-1", "1.0", "1e3", "0x1", " 1", "1 ", "\u0661", "", "x"),
    *("null", "true", "1_0", "4", "8", "12", "2147483647", "2147483648", "-2147483649"),
    *("9223372036854775807", "9223372036854775808", "1" * 20, "0" * 25, "1L", "NaN"),
    *(0, 1, -1, 1.0, 1.5, True, False, None, 2**31, 2**63, [], {}),
)
_TEXTS: Final = ("", " ", "T", "G", "P", "null", "\u00e9", "a/b", "%LMQ%a", None, 1, True, [], {})
FLAGS: Final = ("true", "false", "TRUE", "1", "0", "", " true", None, True, False, 1, "yes")
_numbers = st.sampled_from(NUMBERS)
_ABSENT: Final = object()


@st.composite
def _changed(draw: st.DrawFn, good: Fields, others: Mapping[str, Any]) -> Fields:
    """A good header, mostly with something else in a few places. others: a strategy by field."""
    fields = dict(good)
    for name in draw(st.one_of(st.just([]), st.lists(st.sampled_from(sorted(others)), max_size=2))):
        value = draw(st.one_of(others[name], others[name], others[name], st.just(_ABSENT)))
        if value is _ABSENT:
            fields.pop(name, None)
        else:
            fields[name] = value
    return fields


# -- properties ------------------------------------------------------------------------------------

_LEVELS: Final = ("1", "3", "18", "19", "0", "-1", "+2", "03", "", "x", " 1", "\u0663", "9" * 9)
_pairs = st.one_of(
    st.sampled_from(
        [
            *(
                "KEYS\x01k",
                "KEYS\x01",
                "TAGS\x01A",
                "TAGS\x01\u00e9",
                "UNIQ_KEY\x01U",
                "UNIQ_KEY\x01",
            ),
            *(
                "WAIT\x01true",
                "WAIT\x01false",
                "WAIT\x01FALSE",
                "WAIT\x01",
                "WAIT",
                "NOWAIT\x01false",
            ),
            *("CLUSTER\x01other", "PGROUP\x01P", "PGROUP\x01", "__SHARDINGKEY\x01s", "a\x01b", "a"),
            *(
                'UNIQ_KEY\x01a "%d\\ \x7f\u2028',
                "XDELAY\x013",
                "XTRAN_MSG\x01true",
                "\x01",
                "\x01v",
            ),
            *("INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b", "INNER_MULTI_DISPATCH\x01a/b", "CLUSTER"),
            *("INNER_MULTI_DISPATCH\x01", "INNER_MULTI_QUEUE_OFFSET\x017", "INNER_NUM\x012"),
            *("TIMER_DELAY_SEC\x015", "TIMER_DELAY_MS\x0150", "TIMER_DELIVER_MS\x011700000005000"),
            *("TIMER_DEL_UNIQKEY\x01T+U", "TIMER_DELAY_SEC\x01x", "TIMER_OUT_MS\x011"),
            *("REAL_TOPIC\x01T", "REAL_QID\x011", "POP_CK\x011 2", "__CRC32#\x01", "XREAL_QID\x01"),
            *(
                "__LITE_TOPIC\x01s1",
                "__LITE_TOPIC\x01a b",
                "__LITE_TOPIC\x01",
                "X__LITE_TOPIC\x01s1",
            ),
            *("INNER_MULTI_DISPATCH\x01%LMQ%$T$s1", f"__LITE_TOPIC\x01{'x' * 64}"),
            *("_SYS_MSG_PRIORITY_\x013", "_SYS_MSG_PRIORITY_\x019", "_SYS_MSG_PRIORITY_\x01x"),
            *("CORRELATION_ID\x01c", "REPLY_TO_CLIENT\x01asker", "MSG_TYPE\x01reply"),
        ]
    ),
    st.sampled_from(_LEVELS).map(lambda level: f"DELAY\x01{level}"),
    st.sampled_from(["true", "true", "TRUE", "false", "", "truex"]).map("TRAN_MSG\x01{}".format),
    st.sampled_from(sorted(RESERVED)).map("{}\x011".format),
)
_near_limit = st.integers(-80, 40).map(lambda more: "L\x01" + "v" * (PROPERTIES_LIMIT + more))
properties = st.one_of(
    st.tuples(st.lists(_pairs, max_size=4), st.sampled_from(["", "", "\x02", "\x02\x02"])).map(
        lambda made: "\x02".join(made[0]) + made[1]
    ),
    st.sampled_from(["", "KEYS\x01k", "UNIQ_KEY\x01U\x02WAIT\x01true", "DELAY\x013\x02KEYS\x01k"]),
)
_long_properties = st.one_of(*[properties] * 12, _near_limit)
_bodies = st.one_of(
    *[st.binary(max_size=20)] * 8,
    st.integers(MOST_BODY - 1, MOST_BODY + 1).map(bytes),
)
_topics = st.one_of(
    *[st.sampled_from(["T", "T", "T", "Tags"])] * 8,
    st.sampled_from(["T", "Tags", "Batches", "Compact", "Static", "ReadOnly", "New", "%RETRY%G"]),
    st.sampled_from(["%LMQ%a", "", "a/b", "SCHEDULE_TOPIC_XXXX", "Unknown", "%DLQ%G", "T "]),
)
_signers = st.sampled_from([*["member"] * 8, "application", "nobody"])
_forms = st.sampled_from(["plain"] * 24 + ["ascii", "code last", "spaces", "twice"])
_request_flags = st.sampled_from([0] * 20 + [2, 2, 4, 1 << 31 - 1])
_shape = st.fixed_dictionaries(
    {
        "flag": _request_flags,
        "binary": st.booleans(),
        "signer": _signers,
        "form": _forms,
        "version": st.sampled_from([409, 409, 0, 479]),
    }
)


def batch_body(items: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Flag, body and properties of each message, as a Java client packs them."""
    packed = b""
    for flag, body, text in items:
        size = BATCH_ITEM_HEAD.size + len(body) + 2 + len(text)
        packed += BATCH_ITEM_HEAD.pack(size, 0, 0, flag, len(body)) + body
        packed += struct.pack(">h", len(text)) + text
    return packed


@st.composite
def batch_bodies(draw: st.DrawFn) -> bytes:
    """Sometimes damaged."""
    items = draw(
        st.one_of(
            st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=9), properties), max_size=4),
            st.tuples(st.just(0), st.binary(max_size=9), properties).map(lambda one: [one] * 9),
        )
    )
    body = bytearray(batch_body((flag, own, text.encode()) for flag, own, text in items))
    damage = draw(st.one_of(*[st.just(-1)] * 6, st.integers(0, 200)))
    if 0 <= damage < len(body):
        body[damage] ^= 1
    return bytes(body)


# -- requests --------------------------------------------------------------------------------------

SEND: Final[Fields] = {
    "a": "P",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000123",
    "h": "0",
    "i": "KEYS\x01k",
    "j": "0",
    "k": "false",
    "m": "false",
}
_SYS_FLAGS: Final = ("1", "4", "4", "8", "12", "16", "48", "128", "192", "257", "-144")
_SEND_OTHERS: Final = {
    "a": st.sampled_from(_TEXTS),
    "c": st.sampled_from(["TBW102", "Nothing", "", None, 1]),
    "d": _numbers,
    "e": st.one_of(st.sampled_from(["1", "2", "3", "03"]), _numbers),
    "f": st.one_of(st.sampled_from(_SYS_FLAGS), _numbers),
    "g": _numbers,
    "h": _numbers,
    "i": st.one_of(_long_properties, st.sampled_from([None, 1, True])),
    "j": _numbers,
    "k": st.sampled_from(FLAGS),
    "l": _numbers,
    "m": st.sampled_from(FLAGS),
    "n": st.sampled_from(["broker-a", "", None, 1]),
    "reportDurability": st.sampled_from(["true", "", None]),
    "unknown": st.sampled_from(["", "x", None, 1]),
}


def named(code: int, fields: Fields) -> Fields:
    """With the names of a code: letters, or those of SendMessageRequestHeader."""
    if code not in (Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE):
        return fields
    return {_LONG_NAMES.get(name, name): value for name, value in fields.items()}


@st.composite
def sends(draw: st.DrawFn) -> Ask:
    """310, 10 and 320, single ones and batches."""
    code = draw(
        st.sampled_from(
            [*[Code.SEND_MESSAGE_V2] * 3, Code.SEND_MESSAGE, *[Code.SEND_BATCH_MESSAGE] * 2]
        )
    )
    batch = draw(st.integers(0, 9)) < (8 if code == Code.SEND_BATCH_MESSAGE else 1)
    good = SEND | {
        "b": draw(_topics),
        "i": draw(_long_properties),
        "m": "true" if batch else "false",
    }
    fields = draw(_changed(good, _SEND_OTHERS))
    body = draw(batch_bodies() if batch else _bodies)
    return Ask(int(code), named(code, fields), body, **draw(_shape))


HALF: Final = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U\x02WAIT\x01true"


@st.composite
def halves(draw: st.DrawFn) -> Ask:
    """310 of a half."""
    extra = draw(st.one_of(st.just(""), st.just(""), properties))
    others = {name: _SEND_OTHERS[name] for name in "efghj"}
    good = SEND | {"f": "4", "i": f"{HALF}\x02{extra}" if extra else HALF, "b": draw(_topics)}
    return Ask(310, draw(_changed(good, others)), draw(_bodies), signer=draw(_signers))


END: Final[Fields] = {
    "producerGroup": "P",
    "commitLogOffset": "@HALF_PLACE",
    "tranStateTableOffset": "@HALF_OFFSET",
    "commitOrRollback": "8",
    "fromTransactionCheck": "false",
    "msgId": "U",
}
_END_OTHERS: Final = {
    "producerGroup": st.sampled_from(_TEXTS),
    "commitLogOffset": st.one_of(st.sampled_from(["0@HALF_PLACE", "+@HALF_PLACE"]), _numbers),
    "tranStateTableOffset": st.one_of(
        st.sampled_from(["0@HALF_OFFSET", " @HALF_OFFSET", "@HALF_OFFSETx"]), _numbers
    ),
    "commitOrRollback": st.one_of(st.sampled_from(["12", "0", "12"]), _numbers),
    "fromTransactionCheck": st.sampled_from(FLAGS),
    "msgId": st.sampled_from(_TEXTS),
    "transactionId": st.sampled_from(_TEXTS),
}


@st.composite
def ends(draw: st.DrawFn) -> Ask:
    """37."""
    return Ask(37, draw(_changed(END, _END_OTHERS)), **draw(_shape))


PULL: Final[Fields] = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "2",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "20",
    "subscription": "*",
    "subVersion": "1",
    "expressionType": "TAG",
}
_PULL_OTHERS: Final = {
    "consumerGroup": st.sampled_from(["H", "Unknown", *_TEXTS]),
    "topic": _topics,
    "queueId": _numbers,
    "queueOffset": st.one_of(st.integers(0, 40).map(str), _numbers),
    "maxMsgNums": st.one_of(st.integers(0, 40).map(str), _numbers),
    "sysFlag": st.one_of(st.integers(0, 31).map(str), _numbers),
    "commitOffset": _numbers,
    "suspendTimeoutMillis": _numbers,
    "subscription": st.sampled_from(["*", "A", "A || B", "||", "a > 1", "", None, 1]),
    "subVersion": _numbers,
    "expressionType": st.sampled_from(["TAG", "SQL92", "", "x", None, 1]),
    "maxMsgBytes": _numbers,
    "requestSource": _numbers,
    "proxyFrowardClientId": st.sampled_from(_TEXTS),
    "bname": st.sampled_from(_TEXTS),
    "liteTopic": st.sampled_from(["s1", *_TEXTS]),
}


@st.composite
def pulls(draw: st.DrawFn) -> Ask:
    """11 and 361."""
    good = PULL | {
        "queueOffset": str(draw(st.integers(0, 6))),
        "sysFlag": draw(st.sampled_from(["4", "4", "4", "0", "6", "5"])),
        "consumerGroup": draw(st.sampled_from(["G", "G", "H"])),
    }
    code = draw(st.sampled_from([11, 11, 361]))
    return Ask(code, draw(_changed(good, _PULL_OTHERS)), **draw(_shape))


POP: Final[Fields] = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "maxMsgNums": "2",
    "invisibleTime": "60000",
    "pollTime": "0",
    "bornTime": "0",
    "initMode": "0",
    "expType": "TAG",
    "exp": "*",
    "order": "false",
}
_POP_OTHERS: Final = {
    "consumerGroup": st.sampled_from(["H", *_TEXTS]),
    "topic": _topics,
    "queueId": st.one_of(st.just("-1"), _numbers),
    "maxMsgNums": _numbers,
    "invisibleTime": _numbers,
    "pollTime": st.one_of(st.just("50"), _numbers),
    "bornTime": _numbers,
    "initMode": _numbers,
    "expType": st.sampled_from(["TAG", "SQL92", "", None, 1]),
    "exp": st.sampled_from(["*", "A", "a > 1", "", None]),
    "order": st.sampled_from(FLAGS),
    "attemptId": st.sampled_from(_TEXTS),
}
ACK: Final[Fields] = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "extraInfo": "@HANDLE",
    "offset": "@POPPED",
}
_ACK_OTHERS: Final = {
    "consumerGroup": st.sampled_from(["H", *_TEXTS]),
    "topic": _topics,
    "queueId": _numbers,
    "extraInfo": st.sampled_from(
        ["@HANDLE x", "", "1 2 3", "0 1700000000000 60000 0 0 broker-a 0 0"]
    ),
    "offset": st.one_of(st.just("0@POPPED"), _numbers),
    "liteTopic": st.sampled_from(["s1", *_TEXTS]),
}


@st.composite
def pops(draw: st.DrawFn) -> Ask:
    """200050."""
    return Ask(200050, draw(_changed(POP, _POP_OTHERS)), **draw(_shape))


@st.composite
def acks(draw: st.DrawFn) -> Ask:
    """200051."""
    return Ask(200051, draw(_changed(ACK, _ACK_OTHERS)), **draw(_shape))


def heartbeat_body(version: int = 1, group: str = "G", client_id: str = "asker") -> bytes:
    """A producer and a consumer of `group`; another version is another subscription."""
    subscription = SubscriptionData(topic="T", sub_string="*", sub_version=version)
    body = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[ConsumerData(group_name=group, subscription_data_set=[subscription])],
        producer_data_set=[ProducerData(group_name="P")],
    )
    return body.to_json_bytes()


_heartbeat_bodies = st.one_of(
    *[st.just(heartbeat_body())] * 4,
    st.sampled_from(
        [
            heartbeat_body(2),
            heartbeat_body(1, "H"),
            heartbeat_body(1, "G", "another"),
            heartbeat_body() + b" ",
            b"",
            b"{}",
            b"x",
        ]
    ),
)


@st.composite
def heartbeats(draw: st.DrawFn) -> Ask:
    """34."""
    others = {"x": st.sampled_from([*_TEXTS])}
    return Ask(34, draw(_changed({}, others)), draw(_heartbeat_bodies), **draw(_shape))


@st.composite
def replies(draw: st.DrawFn) -> Ask:
    """324 and 325."""
    code = draw(st.sampled_from([Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2]))
    text = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker\x02MSG_TYPE\x01reply"
    good = SEND | {"b": "C_REPLY_TOPIC", "i": text}
    fields = draw(_changed(good, {**_SEND_OTHERS, "b": _topics}))
    return Ask(int(code), named(code, fields), draw(_bodies), **draw(_shape))


BACK: Final[Fields] = {
    "offset": "@PLACE",
    "group": "G",
    "delayLevel": "0",
    "originMsgId": "U",
    "originTopic": "T",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
}
_BACK_OTHERS: Final = {
    "offset": _numbers,
    "group": st.sampled_from(["H", "Unknown", *_TEXTS]),
    "delayLevel": _numbers,
    "originTopic": _topics,
    "unitMode": st.sampled_from(FLAGS),
    "maxReconsumeTimes": _numbers,
}


@st.composite
def send_backs(draw: st.DrawFn) -> Ask:
    """36."""
    return Ask(36, draw(_changed(BACK, _BACK_OTHERS)), **draw(_shape))


requests = st.one_of(
    *[sends()] * 6, *[halves()] * 2, *[ends()] * 2, *[pulls()] * 4, *[pops()] * 2, *[acks()] * 2,
    heartbeats(), heartbeats(), replies(), send_backs(),
)  # fmt: skip
EVENTS: Final = (
    *("nothing",) * 24,
    *("flush", "replicate", "time", "long time", "block", "unblock", "deleted", "changed", "gone"),
    *("back", "room"),
)


@dataclass(frozen=True)
class Turn:
    """Requests that arrive together on one connection, and what happens after them."""

    asks: list[Ask] = field(default_factory=list)
    client: int = 0
    cuts: list[int] = field(default_factory=list)
    event: str = "nothing"


_runs = st.one_of(
    st.lists(requests, min_size=1, max_size=4),
    st.lists(st.one_of(sends(), halves(), st.just(Ask(310, SEND, b"usual"))), max_size=12),
)
"""Of anything, and of what SendRoute takes together."""


def turns() -> st.SearchStrategy[Turn]:
    """One turn of a history."""
    return st.builds(
        Turn,
        _runs,
        st.sampled_from([0, 0, 0, 1]),
        st.one_of(st.just([]), st.lists(st.integers(0, 2_000), max_size=4)),
        st.sampled_from(EVENTS),
    )


@st.composite
def _transactions(draw: st.DrawFn) -> list[Turn]:
    """A half, and what ends it, with something between."""
    between = draw(st.sampled_from(["nothing", "nothing", "block", "deleted", "gone", "flush"]))
    usual = Ask(310, SEND | {"i": HALF, "f": "4"}, b"half")
    first = Turn([draw(st.one_of(st.just(usual), halves()))], event=between)
    ask = st.one_of(st.just(Ask(37, END)), ends())
    return [first, *(Turn([draw(ask)], event=draw(st.sampled_from(EVENTS))) for _ in range(2))]


histories = st.lists(
    st.one_of(*[turns().map(lambda turn: [turn])] * 4, _transactions()), min_size=1, max_size=5
).map(lambda parts: [turn for part in parts for turn in part])
