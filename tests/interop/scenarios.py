"""Runs scenarios.yaml against one broker, of either world, and tells what came of it.

A scenario is a list of steps; a step is one verb with its arguments (`Stage` has a method for each
verb), carried out by the Java client of a driver or, for `raw` and `pull`, by a bare connection.
What a step came to is a plain value in which nothing differs between two brokers that behave
alike: addresses, ids, times and physical offsets have become words. `differences` compares two.

Words in arguments: $id is the name of this run (topics and groups are named by it), $me is a name
that only this side of it has (for clients), $broker, $broker_name, $cluster and $namesrv are the
servers, $long is a text of 40,000 characters, $kept.x.y is a part of what an earlier step came to.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import loads_lenient
from remoting.signature import RequestSigner
from store.message import Message
from store.message_codec import decode_host, decode_message_id, decode_record, encode_host
from tests.interop.accounts import SECRETS
from tests.interop.driver import Driver, DriverError
from tests.interop.harness import Broker
from tests.interop.processes import PeerError, wait_until
from tests.support.our_broker import FrameClient

FILE = Path(__file__).with_suffix(".yaml")
CLUSTER = "InteropCluster"
_WAIT_S = 60.0
_WORD = re.compile(r"\$([a-z_]+(?:\.\w+)*)")
_FAQ = re.compile(r"[,\s]*(See https?://\S+ for further details\.|For more information, .*)", re.S)
_CODED = re.compile(r"CODE: (\d+) +DESC: (.*?)(?: BROKER: \S+)?(?:\n|$)", re.S)
_TIMES = re.compile(
    r"([tT]imestamp|^CONSUME_START_TIME|^subVersion|Version|Time|_TIME|^startDate|_TIMESTAMP)$"
)
_OFFSET_NAMES = {
    "MIN_OFFSET",
    "MAX_OFFSET",
    "preparedTransactionOffset",
    "indexLastUpdatePhyoffset",
}
"""Places in the log, and how far a queue was at the moment of a pull."""
_ID = re.compile(r"(?<![0-9A-F])[0-9A-F]{32}(?:[0-9A-F]{24})?(?![0-9A-F])")
_FRAME = re.compile(r", [\w.$]+\([A-Z]\w*\.java:\d+\)$")
"""Where a Java broker threw, at the end of a remark."""
_PORT = re.compile(r"/?127\.0\.0\.1:\d+")


# -- the file ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """One scenario of the file.

    `both` says whether the client's release matters: then it runs with each, else with 4.9.8 only.
    """

    name: str
    pair: str
    both: bool
    steps: list[Mapping[str, Any]]
    differences: list[Mapping[str, Any]]

    @property
    def tells_clients_apart(self) -> bool:
        """Whether a difference is one of a single release of the client."""
        return any("client" in each for each in self.differences)

    def accepted(self, client: str) -> dict[str, tuple[Any, Any]]:
        """{place: (java, ours)} that a run with this client must show, and nothing else."""
        return {
            each["at"]: (each.get("java", ABSENT), each.get("ours", ABSENT))
            for each in self.differences
            if each.get("client", client) == client
        }


def load() -> tuple[dict[str, Any], list[Scenario]]:
    """{pair: {settings: of its brokers, slave: whether each has one}} and the scenarios."""
    # Every worker reads it while it collects: libyaml's parser takes a tenth of the time.
    content = yaml.load(FILE.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    scenarios = [
        Scenario(
            each["name"],
            each.get("pair", "plain"),
            each.get("both", True),
            each["steps"],
            each.get("differences", []),
        )
        for each in content["scenarios"]
    ]
    return content["pairs"], scenarios


ABSENT = "(absent)"


def differences(java: list[Any], ours: list[Any]) -> dict[str, tuple[Any, Any]]:
    """{place: (java, ours)} of all that differs; a place is "STEP.NAME.NAME"."""
    left, right = dict(_leaves(java)), dict(_leaves(ours))
    places = [*left, *(place for place in right if place not in left)]
    return {
        place: (left.get(place, ABSENT), right.get(place, ABSENT))
        for place in places
        if left.get(place, ABSENT) != right.get(place, ABSENT)
    }


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    if not pairs:
        yield place, value
    for name, each in pairs:
        yield from _leaves(each, f"{place}.{name}" if place else str(name))


# -- one run -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """Where a scenario runs: one broker, its name server, the client that speaks to them."""

    kind: str
    driver: Driver
    namesrv: str
    broker: Broker
    guarded: bool
    slave: Broker | None = None


@dataclass
class Stage:
    """One run of one scenario on one side; `run` gives what its steps came to."""

    side: Side
    name: str
    kept: dict[str, Any] = field(default_factory=dict)
    _connections: dict[str, FrameClient] = field(default_factory=dict)
    _producers: set[str] = field(default_factory=set)
    _ends: list[tuple[str, str]] = field(default_factory=list)
    _mortals: dict[str, Driver] = field(default_factory=dict)

    def run(self, scenario: Scenario) -> list[Any]:
        """What each step came to. Raises PeerError, naming the step, when one does not end."""
        told = []
        try:
            for number, step in enumerate(scenario.steps):
                try:
                    told.append(self._step(step))
                except (PeerError, DriverError, TimeoutError, OSError, KeyError) as error:
                    where = f"{scenario.name}, {self.side.kind}, step {number} ({next(iter(step))})"
                    raise PeerError(f"{where}: {error!r}; before: {told}") from error
        finally:
            self._end()
        return told

    def _step(self, step: Mapping[str, Any]) -> Any:
        options = dict(step)
        verb, arguments = next(iter(options.items()))
        until, again = options.get("until"), options.get("again")
        outcome: list[Any] = []

        def attempt() -> Any:
            found = self._attempt(getattr(self, f"_{verb}"), self._filled(arguments))
            outcome[:] = [found]
            return found

        def holds() -> bool:
            if again:
                self._step(again)
            leaves = dict(_leaves(self._plain(attempt())))
            wanted = self._filled(until)
            return all(leaves.get(place) == value for place, value in wanted.items())

        if until:
            try:
                wait_until(holds, f"{until}", _WAIT_S, poll_s=1.0 if again else 0.1)
            except PeerError as error:
                raise PeerError(f"{error}; last: {self._plain(outcome[0])}") from None
        else:
            attempt()
        if "keep" in options:
            self.kept[options["keep"]] = outcome[0]
        return self._chosen(self._plain(outcome[0]), options)

    @staticmethod
    def _attempt(verb: Callable[[Any], Any], arguments: Any) -> Any:
        try:
            return verb(arguments)
        except DriverError as error:
            if "IllegalArgumentException" in str(error):
                raise
            return {"refused": str(error)}

    @staticmethod
    def _chosen(told: Any, options: Mapping[str, Any]) -> Any:
        """The parts of an outcome that the step compares: `only` these names, or not `without`."""
        if options.get("silent"):
            return None
        if "only" in options and isinstance(told, dict) and "refused" not in told:
            return {name: told.get(name, ABSENT) for name in options["only"]}
        if "without" in options:
            return _without(told, set(options["without"]))
        return told

    def _filled(self, value: Any) -> Any:
        """Arguments with their words filled in."""
        if isinstance(value, dict):
            return {self._filled(name): self._filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if not isinstance(value, str):
            return value
        whole = _WORD.fullmatch(value)
        if whole:
            return self._word(whole.group(1))
        return _WORD.sub(lambda match: str(self._word(match.group(1))), value)

    def _word(self, word: str) -> Any:
        first, *rest = word.split(".")
        words = {
            "id": self.name,
            "me": f"{self.side.kind}-{self.name}",
            "broker": self.side.broker.address,
            "broker_name": self.side.broker.name,
            "cluster": CLUSTER,
            "namesrv": self.side.namesrv,
            "long": "x" * 40_000,
        }
        if first == "ledger":
            return str(self.side.driver.ledger_path("scenario"))
        value = words[first] if first in words else self.kept[first]
        for name in rest:
            value = value[int(name)] if isinstance(value, list) else value[name]
        return value

    def _end(self) -> None:
        for connection in self._connections.values():
            connection.close()
        for op, name in self._ends:
            self.side.driver.submit(op, name=name)
        for driver in self._mortals.values():
            driver.close()

    # -- verbs: admin --------------------------------------------------------------------------

    def _account(self, a: Mapping[str, Any]) -> dict[str, str]:
        who = a.get("account", "operator" if self.side.guarded else None)
        if who is None or who == "nobody":
            return {}
        if who == "forger":
            return {"access_key": "application", "secret_key": "not-the-secret"}
        return {"access_key": who, "secret_key": SECRETS[who]}

    def _admin(self, a: dict[str, Any]) -> Any:
        """method, arguments: of DefaultMQAdminExt."""
        where = {"producer": f"{self._word('me')}-{a['by']}"} if "by" in a else self._account(a)
        return self.side.driver.call(
            "scenario.call",
            namesrv=self.side.namesrv,
            method=a["method"],
            arguments=a.get("arguments", []),
            **where,
        )

    def _topic(self, a: dict[str, Any]) -> Any:
        """name, queues, perm and any other field of TopicConfig."""
        queues = a.get("queues", 1)
        config = {
            "topicName": a.get("name", self.name),
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": a.get("perm", 6),
            **a.get("fields", {}),
        }
        arguments = [self.side.broker.address, config]
        call = {"method": "createAndUpdateTopicConfig", "arguments": arguments}
        return self._admin({**call, **({"account": a["account"]} if "account" in a else {})})

    def _group(self, a: dict[str, Any]) -> Any:
        """Fields of SubscriptionGroupConfig, groupName among them."""
        arguments = [self.side.broker.address, {"groupName": f"g-{self.name}", **a}]
        call = "createAndUpdateSubscriptionGroupConfig"
        return self._admin({"method": call, "arguments": arguments})

    def _topic_config(self, name: str) -> Any:
        """What the broker's table (21) says of a topic."""
        return self._entry(21, "topicConfigTable", name)

    def _group_config(self, name: str) -> Any:
        """What the broker's table (201) says of a group."""
        return self._entry(201, "subscriptionGroupTable", name)

    def _entry(self, code: int, table: str, name: str) -> Any:
        answer = self._raw({"code": code, "as": "json"})
        return {"is": answer["body"][table].get(name)}

    # -- verbs: sending ------------------------------------------------------------------------

    def _producer(self, a: dict[str, Any]) -> Any:
        """name and settings; each scenario has a producer "p" without being told."""
        name = f"{self._word('me')}-{a.pop('name', 'p')}"
        self._producers.add(name)
        group = a.pop("group", f"pg-{self.name}")
        account = self._account(a)
        a.pop("account", None)
        settings = {"namesrv": self.side.namesrv, "group": group, "poll_ms": 2000, **account, **a}
        self._ends.append(("producer.stop", name))
        return self.side.driver.call("producer.start", name=name, **settings)

    def _send(self, a: dict[str, Any]) -> Any:
        """messages (or message, or bodies), by, topic, and what Scenarios.java says."""
        by = a.pop("by", "p")
        name = f"{self._word('me')}-{by}"
        if name not in self._producers:
            self._producer({"name": by})
        messages = a.pop("messages", None) or [a.pop("message", None)]
        if "bodies" in a:
            messages = [{"body": body} for body in a.pop("bodies")]
        common = {"topic": a.pop("topic", self.name)}
        messages = [{**common, **message} for message in messages]
        return self.side.driver.call("scenario.send", producer=name, messages=messages, **a)

    # -- verbs: consuming ----------------------------------------------------------------------

    def _consume(self, a: dict[str, Any]) -> Any:
        """Start a push consumer called `as`; with `count`, take so many messages and stop it."""
        name = f"{self._word('me')}-{a.get('as', 'c')}"
        settings = {
            "group": f"g-{self.name}",
            "topic": self.name,
            "from": "FIRST_OFFSET",
            "model": "CLUSTERING",
            "expression": "*",
            **{
                key: value
                for key, value in a.items()
                if key not in ("as", "count", "account", "resent")
            },
        }
        driver = self.side.driver
        where = {"namesrv": self.side.namesrv, **self._account(a)}
        driver.call("scenario.consume", name=name, **{**where, **settings})
        self._ends.append(("scenario.stop", name))
        return self._received(a) if "count" in a else True

    def _received(self, a: dict[str, Any]) -> Any:
        """What consumer `as` has got once there are `count`; `stop` ends it first.

        not_before_s: which of them were stored sooner than so long after they were born.
        resent: see _copies.
        """
        resent = bool(a.get("resent"))
        name = f"{self._word('me')}-{a.get('as', 'c')}"
        found: list[dict[str, Any]] = []

        def is_all() -> bool:
            received = self.side.driver.call("scenario.received", name=name)
            found[:] = self._copies(received, resent=resent)
            return len(found) >= a["count"]

        try:
            wait_until(is_all, f"{a['count']} messages at {name}", _WAIT_S, poll_s=0.05)
        except PeerError as error:
            raise PeerError(f"{error}; there are {self._plain(found)}") from None
        if a.get("stop"):
            self._ends.remove(("scenario.stop", name))
            received = self.side.driver.call("scenario.stop", name=name)
            found = self._copies(received, resent=resent)
        early = [
            each["body"]
            for each in found
            if each["storeTimestamp"] - each["bornTimestamp"] < a.get("not_before_s", 0) * 1000
        ]
        if a.get("as_they_came"):
            found.sort(key=lambda each: each["queueId"])
        else:
            keys = ("body", "reconsumeTimes", "queueId", "queueOffset")
            found.sort(key=lambda each: tuple(each[key] for key in keys))
        return {"messages": found, "early": early}

    def _copies(self, received: list[dict[str, Any]], *, resent: bool) -> list[dict[str, Any]]:
        """All of ours. Of Java's the first of each: it may deliver twice, on a busy machine it
        does, and that is not what ours has to do. resent: none of what the client sent again
        itself, see _is_resent.
        """
        if resent:
            received = [each for each in received if not _is_resent(each)]
        if self.side.kind == "ours":
            return received
        first: dict[tuple[Any, ...], dict[str, Any]] = {}
        for each in received:
            unique = each["properties"].get("UNIQ_KEY", each["msgId"])
            first.setdefault((unique, each["body"], each["topic"], each["reconsumeTimes"]), each)
        return list(first.values())

    def _op(self, a: dict[str, Any]) -> Any:
        """Any operation of the driver; `jvm` names one of its own, made when it is first named."""
        driver = self.side.driver
        if "jvm" in a:
            directory = Path(tempfile.mkdtemp(dir=self.side.broker.store_dir.parent))
            if a["jvm"] not in self._mortals:
                self._mortals[a["jvm"]] = Driver(driver.version, directory)
            driver = self._mortals[a["jvm"]]
        operation = a["op"]
        arguments = {key: value for key, value in a.items() if key not in ("op", "jvm")}
        defaults = {"namesrv": self.side.namesrv} if operation.endswith(".start") else {}
        if operation.endswith(".start") and "jvm" not in a:
            self._ends.append((operation.replace(".start", ".stop"), arguments["name"]))
        return driver.call(operation, **{**defaults, **arguments})

    def _kill(self, name: str) -> Any:
        """The JVM of this name dies."""
        self._mortals.pop(name).kill()
        return True

    # -- verbs: bare frames --------------------------------------------------------------------

    def _raw(self, a: dict[str, Any]) -> Any:
        """code, fields, body (an object is sent as JSON), on (a connection kept open by name).

        as: json, messages or text is what the answer's body is read as. message: the offset id of
        one, whose physical offset becomes the field `offset` or the one that `becomes` names; at:
        slave or namesrv, who is asked.
        """
        body = a.get("body", b"")
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        fields = {name: _text(value) for name, value in a.get("fields", {}).items()}
        if "message" in a:
            place = decode_message_id(a["message"])[1]
            fields[a.get("becomes", "offset")] = str(place)
        request = RemotingCommand.request(a["code"], fields, body)
        account = self._account(a)
        if account:
            RequestSigner(account["access_key"], account["secret_key"]).sign(request)
        if "on" in a and a["on"] not in self._connections:
            self._connections[a["on"]] = self._connect(a)
        client = self._connections[a["on"]] if "on" in a else self._connect(a)
        try:
            answer = client.call(a["code"], request.ext_fields, body)
        finally:
            if "on" not in a:
                client.close()
        return {
            "code": answer.code,
            "remark": answer.remark,
            "fields": dict(answer.ext_fields),
            "body": _read_body(answer.body, a.get("as")),
        }

    def _connect(self, a: Mapping[str, Any]) -> FrameClient:
        slave = self.side.slave.address if self.side.slave is not None else ""
        servers = {"broker": self.side.broker.address, "slave": slave}
        address = {**servers, "namesrv": self.side.namesrv}[a.get("at", "broker")]
        host, _, port = address.rpartition(":")
        return FrameClient((host, int(port)))

    def _pull(self, a: dict[str, Any]) -> Any:
        """One pull without waiting: topic, queue, offset, group, sys_flag, subscription, type.

        resent: see _copies.
        """
        fields = {
            "consumerGroup": a.get("group", f"g-{self.name}"),
            "topic": a.get("topic", self.name),
            "queueId": a.get("queue", 0),
            "queueOffset": a.get("offset", 0),
            "maxMsgNums": a.get("count", 32),
            "sysFlag": a.get("sys_flag", 4),
            "commitOffset": a.get("commit", 0),
            "suspendTimeoutMillis": 0,
            "subscription": a.get("subscription", "*"),
            "subVersion": a.get("version", 0),
            "expressionType": a.get("type", "TAG"),
        }
        passed = {key: a[key] for key in ("on", "account") if key in a}
        answer = self._raw({"code": 11, "fields": fields, "as": "messages", **passed})
        if a.get("resent"):
            answer["body"] = [each for each in answer["body"] if not _is_resent(each)]
        return answer

    def _matching(self, expressions: list[str]) -> Any:
        """Which bodies of the first queue a pull with each of these SQL92 expressions gives, or
        the code with which it is refused."""
        told = {}
        for expression in expressions:
            bodies: list[str] = []
            at, end = 0, 1
            # A busy broker answers before it has looked at all.
            while at < end:
                answer = self._pull({"type": "SQL92", "subscription": expression, "offset": at})
                if answer["code"] not in (0, 20):
                    break
                bodies += [message["body"] for message in answer["body"]]
                at = int(answer["fields"]["nextBeginOffset"])
                end = int(answer["fields"]["maxOffset"])
            told[expression] = bodies if at == end else answer["code"]
        return told

    def _gave(self, a: dict[str, Any]) -> Any:
        """Whether the broker (at: slave for that one) gave `at_least` so many messages today."""
        info = self._raw({**a, "code": 28, "as": "json"})["body"]["table"]
        return {"enough": int(info["msgGetTotalTodayNow"]) >= a["at_least"]}

    def _find(self, a: dict[str, Any]) -> Any:
        """Which of `words` stand in a body of `topic` (one queue) beside this run's name."""
        words: set[str] = set()
        with self.side.broker.client() as client:
            at, end = client.offset(31, a["topic"], 0), client.offset(30, a["topic"], 0)
            while at < end:
                pulled = client.pull(a["topic"], 0, at)
                at = pulled.next_offset
                texts = [message.body.decode("utf-8", "replace") for message in pulled.messages]
                mine = " ".join(text for text in texts if self.name in text)
                words |= {word for word in a["words"] if word in mine}
        return {word: word in words for word in a["words"]}

    def _heartbeat(self, a: dict[str, Any]) -> Any:
        """A consumer's heartbeat on connection `on`: group, model, type, subscriptions."""
        subscriptions = [
            {
                "topic": self.name,
                "subString": "*",
                "subVersion": 1,
                "expressionType": "TAG",
                "classFilterMode": False,
                "tagsSet": [],
                "codeSet": [],
                **each,
            }
            for each in a.get("subscriptions", [{}])
        ]
        group = {
            "groupName": a.get("group", f"g-{self.name}"),
            "consumeType": a.get("type", "CONSUME_PASSIVELY"),
            "messageModel": a.get("model", "CLUSTERING"),
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        client = a.get("client", f"client-{self.name}")
        body = {"clientID": client, "producerDataSet": [], "consumerDataSet": [group]}
        passed = {"account": a["account"]} if "account" in a else {}
        return self._raw({"code": 34, "body": body, "on": a.get("on", "beat"), **passed})

    # -- what is compared ----------------------------------------------------------------------

    def _plain(self, value: Any, name: str = "") -> Any:
        """An outcome without what two brokers cannot have in common."""
        if isinstance(value, dict):
            if "refused" in value:
                return {"refused": self._refusal(value["refused"])}
            return {self._plain_text(str(k)): self._plain(v, str(k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if value is not None and _TIMES.search(name):
            return str(value) if str(value) in ("0", "-1") else "(time)"
        if name in _OFFSET_NAMES:
            return "(offset)" if str(value) != "0" else "0"
        if name == "remark" and isinstance(value, str):
            return self._remark(value)
        return self._plain_text(value) if isinstance(value, str) else value

    def _refusal(self, text: str) -> Any:
        """A Java client's exception: the broker's code and words, or the client's own."""
        coded = _CODED.search(text)
        if coded:
            return {"code": int(coded.group(1)), "remark": self._remark(coded.group(2))}
        kind, _, words = text.partition(" <- ")[0].partition(":")
        return {"kind": kind.rpartition(".")[2], "words": self._plain_text(words).strip()}

    def _remark(self, text: str) -> str:
        return self._plain_text(_FRAME.sub("", _FAQ.sub("", text))).strip()

    def _plain_text(self, text: str) -> str:
        text = _FAQ.sub("", text).replace(self.side.broker.address, "(broker)")
        if self.side.slave is not None:
            text = text.replace(self.side.slave.address, "(slave)")
        text = text.replace(self.side.namesrv, "(namesrv)")
        text = text.replace(f"{self.side.kind}-{self.name}", "$me").replace(self.name, "$id")
        text = _ID.sub(self._plain_id, text)
        return _PORT.sub("(peer)", text)

    def _plain_id(self, match: re.Match[str]) -> str:
        of_broker = encode_host("127.0.0.1", self.side.broker.port).hex().upper()
        is_offset = len(match.group()) == 32 and match.group().startswith(of_broker)
        return "(offset id)" if is_offset else "(unique id)"


def _is_resent(message: Mapping[str, Any]) -> bool:
    """Whether a concurrent consumer has sent it itself, or what it became since then.

    A Java client whose send-back (36) has no answer within five seconds sends the message to the
    retry topic by its own producer, to a broker of either world, whether the first request is done
    later or not: there are two dead letters then. Only such a send has this property.
    """
    return "MAX_RECONSUME_TIMES" in message["properties"]


def _without(told: Any, names: set[str]) -> Any:
    if isinstance(told, dict):
        return {name: _without(each, names) for name, each in told.items() if name not in names}
    if isinstance(told, list):
        return [_without(each, names) for each in told]
    return told


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_body(body: bytes, form: str | None) -> Any:
    if form == "messages":
        return list(_records(body))
    if form == "json":
        return loads_lenient(body) if body else None
    if form == "text":
        return body.decode("utf-8", "replace")
    return len(body) > 0


def _records(body: bytes) -> Iterator[dict[str, Any]]:
    position = 0
    while position < len(body):
        message, size = decode_record(body, position)
        position += size
        yield _told(message)


def _told(message: Message) -> dict[str, Any]:
    short = len(message.body) <= 200
    text = message.body.decode("utf-8", "replace") if short else f"{len(message.body)} bytes"
    host, port = decode_host(message.store_host)
    return {
        "topic": message.topic,
        "body": text,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "reconsumeTimes": message.reconsume_times,
        "properties": message.property_map(),
        "bornHost": decode_host(message.born_host)[0],
        "storeHost": f"{host}:{port}",
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
