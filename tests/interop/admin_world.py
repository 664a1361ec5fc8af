"""A broker, its name server and Java clients under a Java mqadmin: one of two worlds that a test
compares.

A world prepares itself, runs the steps of admin_steps.py in their order and keeps what each of them
printed, values apart. Which values those are is said in the tables here and nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from remoting.body.kv_table import KVTable
from remoting.body.stats import ConsumeStats
from remoting.lite_names import to_lmq_name
from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from tests.broker.lite.lite_client import LiteClient, LiteMessage, send_lite
from tests.interop import harness
from tests.interop.admin_steps import (
    GROUP,
    LITE_CLIENT,
    LITE_GROUP,
    LITE_PARENT,
    PRODUCERS,
    QUEUES,
    READERS,
    RETRY_QUEUES,
    SENT,
    TOPIC,
    TRACE_TOPIC,
    Phase,
    Step,
)
from tests.interop.driver import Consumer, Driver
from tests.interop.processes import PeerError, wait_until
from tools.chaos.free_ports import free_port

CLUSTER: Final = "InteropCluster"
_LIMIT_MS: Final = 30_000
_TRACE_S: Final = 5.0
_ACCOUNTS: Final = "globalWhiteRemoteAddresses:\n- 127.0.0.1\naccounts: []\n"
"""Access control is on, for its commands, and lets everybody here in."""
_LOG_LINES: Final = re.compile(r"\[(?:MONITOR|NOTIFY)\].*")
_ID: Final = re.compile(r"\b[0-9A-F]{32,56}\b")
_FRAME: Final = re.compile(r"! (at |\.\.\. \d+ more)")
"""Of a stack trace."""

_VALUES: Final = tuple(
    (re.compile(pattern), sign)
    for pattern, sign in (
        (_ID.pattern, "<id>"),
        (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,:.]\d+)?", "<time>"),
        (r"\b\d{13}\b", "<ms>"),
        (r"\b127\.0\.0\.1:\d+\b", "<host>"),
        (r"(?<=CommitLog Offset: )\d+|(?<=commitLogOffset=)\d+", "<offset>"),
        (r"(?<=Consume TPS: )[0-9.]+", "<rate>"),
        (r"(?<=spentTimeMills=)\d+", "<spent>"),
        (r"(?<=bodyCRC=)\d+", "<crc>"),
        (r"(?<=putMessageDistributeTime : ).*", "<times>"),
        # Identity hashes and lambdas of the tool's own JVM, and where it says help is.
        (r"@[0-9a-f]{4,8}\b|\$Lambda\S+", "@<object>"),
        (r"https?://\S+", "<url>"),
        (r"\(\d+ s ago\)", "(<age>)"),
    )
)
_NEWER_VALUES: Final = tuple(
    (re.compile(pattern), sign)
    for pattern, sign in (
        # A 5.x broker stores properties that a 4.9 broker leaves out, so its messages are longer.
        (r"(MSG_REGION=DefaultRegion|WAIT=true|TRACE_ON=true)(, )?", ""),
        (r", (?=\})", ""),
        (r"(?<=storeSize=)\d+|(?<=physicOffset=)\d+|(?<=physicSize=)\d+", "<size>"),
        # It names a topic among the groups that consume it.
        (rf"MessageTrack \[consumerGroup={TOPIC},[^\]]*\]\n?", ""),
        (rf"(?m)^({CLUSTER} )?{TOPIC} {TOPIC}( .*)?\n", ""),
        # Its consumer has an offset in an empty queue only when a first pull was held and ended.
        (rf"(?m)^(%RETRY%{GROUP} ({GROUP} )?broker-a|.*topic=%RETRY%{GROUP}\b).*\n", ""),
        # 5.5's key of an index entry ends with the place in the log.
        (r"(?<=@<id>@)\d+", "<offset>"),
        # Its system topics.
        (r"(?m)^.*(RMQ_SYS_(ROCKSDB_)?TRANS_(OP_)?HALF_TOPIC|rmq_sys_\w+).*\n", ""),
    )
)
"""Beside those, where a broker of 5.x is the other one."""
_OWN_GROUPS: Final = re.compile(
    rf"(?!.*reportDeleteMsgsEvent).*(TOOLS_CONSUMER|__MONITOR_CONSUMER|{READERS}|"
    r"clientId=\S+@(<ms>|<object>#\d+))"
)
"""Of the tools themselves: a broker knows them from the moment of a heartbeat, if one came in time.
Rows about them are left out."""
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?|<ms>")
_NUMBERS: Final = re.compile(r"#(\.#)+")


@dataclass(frozen=True, slots=True)
class Output:
    """What one step printed: as it was, and values apart."""

    step: Step
    raw: str
    lines: list[str]
    ended: bool


class AdminWorld:
    """`kind` of servers, asked by the mqadmin of `version`. Used by one thread."""

    def __init__(self, kind: str, directory: Path, version: str) -> None:
        self.kind = kind
        self.version = version
        self.outputs: list[Output] = []
        self.runtime: dict[str, str] = {}
        """The answer to 28, at the end of run."""
        self._directory = directory
        self._facts: dict[str, str] = {}
        self._namesrv: harness.NameServer | None = None
        self._broker = self._make_broker()
        self._driver = Driver(version, directory / "driver", home=directory / "java-home")
        self._consumer: Consumer | None = None

    @property
    def line(self) -> str:
        """Of the tool's release: "4.9", "5.3" or "5.5"."""
        return self.version[:3]

    def start(self) -> None:
        """Until the name server knows the broker."""
        if self._namesrv is not None:
            self._namesrv.start()
        self._broker.start()
        self._facts |= {
            "cluster": CLUSTER,
            "name": self._broker.name,
            "broker": self._broker.address,
            "export": str(self._directory / "export"),
        }
        wait_until(self._is_registered, f"{self.kind} registered", 120.0, poll_s=0.2)

    def stop(self) -> None:
        self._driver.close()
        self._broker.end()
        if self._namesrv is not None:
            self._namesrv.stop()

    def commands(self) -> list[str]:
        """What this release's mqadmin registers, as it says itself."""
        return re.findall(r"^   (\w+)\s", self._mqadmin([])["out"], re.MULTILINE)

    def run(self, phases: Iterable[Phase]) -> None:
        """All steps for this line; `outputs` has what they printed."""
        for phase in phases:
            getattr(self, phase.before)()
            steps = [step for step in phase.steps if self.line.startswith(step.only)]
            begun = {step: self._mqadmin(self._arguments(step)) for step in steps if step.logged}
            self.outputs.extend(self._run(step, begun.get(step)) for step in steps)
        with self._broker.client() as client:
            body = client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body
        self.runtime = KVTable.from_json_bytes(body).table

    # -- what phases begin with ---------------------------------------------------------------

    def nothing(self) -> None:
        """The steps need nothing more."""

    def write_lists(self) -> None:
        """Two topics and two groups, as files."""
        numbers = (1, 2)
        topics = [{"topicName": f"{TOPIC}List{n}", "readQueueNums": n} for n in numbers]
        groups = [{"groupName": f"{GROUP}-list-{n}"} for n in numbers]
        for name, rows in (("topics", topics), ("groups", groups)):
            path = self._directory / f"{name}.json"
            path.write_text(json.dumps(rows))
            self._facts[name] = str(path)

    def go_online(self) -> None:
        """A producer that has sent, and a consumer that has consumed and committed all."""
        ids = [found.group() for each in self.outputs for found in _ID.finditer(each.raw)]
        self._facts |= {"unique_id": ids[0], "traced_id": ids[-1]}
        namesrv = self._facts["namesrv"]
        self._driver.call("producer.start", name="online", namesrv=namesrv, group=PRODUCERS)
        sent = self._driver.call(
            "send.one", producer="online", topic=TOPIC, tags="", keys="one", body="one", queue=3
        )
        self._facts["offset_id"] = sent["offset_msg_id"]
        wait_until(self._knows_the_producer, "the producer known", 90.0, poll_s=0.2)
        self._consumer = Consumer(self._driver, "push", namesrv, GROUP, TOPIC)
        self._consumer.wait_for(SENT, 60.0)
        wait_until(self._has_committed_all, "all committed", 60.0)
        wait_until(lambda: len(self._clients()) == 1, "the consumer known")
        self._facts["client"] = self._clients()[0]

    def stop_the_consumer(self) -> None:
        """Until the broker has forgotten it."""
        assert self._consumer is not None
        self._consumer.stop()
        wait_until(lambda: not self._clients(), "the consumer gone")

    def use_lite_topics(self) -> None:
        """5.5: of s1 one message is acknowledged, one is out and one waits behind it; of s2 all is
        acknowledged; s3 is subscribed and has none."""
        if self.line != "5.5":
            return
        namesrv, broker = self._facts["namesrv"], ["-b", self._broker.address]
        topic, group = ["-t", LITE_PARENT], ["-g", LITE_GROUP]
        lite = ["-a", "+message.type=LITE,+lite.topic.expiration=30"]
        bound = ["--attributes", f"+lite.bind.topic={LITE_PARENT}"]
        self._mqadmin(["updateTopic", "-n", namesrv, *broker, *topic, *lite])
        self._mqadmin(["updateSubGroup", "-n", namesrv, *broker, *group, *bound])
        with self._broker.client() as frames:
            client = LiteClient(frames, LITE_GROUP, LITE_CLIENT, self._broker.name, LITE_PARENT)
            for lite_topic in ("s1", "s1", "s2"):
                answer = send_lite(frames, lite_topic, b"body", parent=LITE_PARENT)
                assert answer.code == 0, answer.remark
            s1, s2 = (to_lmq_name(LITE_PARENT, lite) for lite in ("s1", "s2"))
            wait_until(lambda: frames.offset(30, s1, 0) == 2, "two lite messages")
            wait_until(lambda: frames.offset(30, s2, 0) == 1, "another one")
            client.subscribe("s1", "s2", "s3", offsetOption={"type": "POLICY", "value": 1})
            popped: dict[tuple[str, int], LiteMessage] = {}

            def has_all() -> bool:
                popped.update(((one.lite, one.offset), one) for one in client.pop(pollTime=2_000))
                return len(popped) == 3

            wait_until(has_all, f"the lite messages of {self.kind}", 30.0)
            for place in (("s1", 0), ("s2", 0)):
                assert client.ack(popped[place]).code == 0
            send_lite(frames, "s1", b"body", parent=LITE_PARENT)
            wait_until(lambda: frames.offset(30, s1, 0) == 3, "the last one")

    def _clients(self) -> list[str]:
        with self._broker.client() as client:
            answer = client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP})
        connected = loads_lenient(answer.body)["connectionSet"] if answer.code == 0 else []
        return [each["clientId"] for each in connected]

    def _knows_the_producer(self) -> bool:
        """A producer that had no route at its first heartbeat sends the next 30 s later."""
        fields = {"producerGroup": PRODUCERS}
        with self._broker.client() as client:
            return client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, fields).code == 0

    def _has_committed_all(self) -> bool:
        """A broker shows the queues in which a group has an offset; see _NEWER_VALUES."""
        with self._broker.client() as client:
            answer = client.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": GROUP})
        table = ConsumeStats.from_json_bytes(answer.body).offset_table if answer.code == 0 else {}
        consumed = sum(each.consumer_offset for each in table.values())
        retried = RETRY_QUEUES if self.line == "4.9" else 0
        return len(table) >= QUEUES + retried and consumed == SENT

    # -- servers ------------------------------------------------------------------------------

    def _make_broker(self) -> harness.Broker:
        conf = self._directory / "java-home" / "conf"
        conf.mkdir(parents=True)
        (conf / "logback_tools.xml").write_text("<configuration/>")
        # Java's first check of transactions, after 60 s, makes a topic: topicList would show it or
        # not, depending on how fast the steps were.
        settings = {"traceTopicEnable": "true", "transactionCheckInterval": "3600000"}
        if self.line == "5.5":
            settings |= {"enableLmq": "true", "enableMultiDispatch": "true"}
        if self.line == "4.9":
            (conf / "plain_acl.yml").write_text(_ACCOUNTS)
            settings["aclEnable"] = "true"
        given = None
        if self.kind == "ours":
            port = free_port()
            settings |= {"embeddedNamesrvPort": str(port), "rocketmqHome": str(conf.parent)}
            self._facts["namesrv"] = f"127.0.0.1:{port}"
        else:
            self._namesrv = harness.name_server(self.kind, self._directory / "namesrv")
            given = self._facts["namesrv"] = self._namesrv.address
        if self.kind in harness.KINDS_5:
            # Without its timers it fails to delete a topic. Writing down the 38 MB of their wheel
            # each second, when nobody has one, is a sixth of a processor.
            settings |= {"timerWheelEnable": "true", "timerFlushIntervalMs": "600000"}
        return harness.broker(self.kind, self._directory, given, conf=settings)

    def _is_registered(self) -> bool:
        told = self._mqadmin(["clusterList", "-n", self._facts["namesrv"]])
        return self._broker.address in told["out"]

    # -- steps --------------------------------------------------------------------------------

    def _arguments(self, step: Step) -> list[str]:
        where = [step.command, "-n", self._facts["namesrv"]]
        return where + shlex.split(step.arguments.format(**self._facts))

    def _run(self, step: Step, begun: dict[str, Any] | None = None) -> Output:
        """begun: the answer of a command that was begun before."""
        arguments = self._arguments(step)
        answer: dict[str, Any] = begun or {}

        def is_there() -> bool:
            answer.update(self._mqadmin(arguments, step.lines))
            if step.traced:
                return self._has_trace(_ID.findall(answer["out"])[-1])
            return re.search(step.until, answer["out"]) is not None

        # What it prints at last is compared, so nothing is lost when it never comes.
        with contextlib.suppress(PeerError):
            if begun is None:
                wait_until(is_there, f"{step.until} of {step.command}", poll_s=0.2)
        raw = answer["out"] + "".join(f"\n! {line}" for line in answer["err"].splitlines())
        if step.logged:
            raw += self._log(step.logged)
        if step.file:
            raw += self._exported(step.file)
        return Output(step, raw, self._plain(step, raw), answer["ended"])

    def _has_trace(self, message_id: str) -> bool:
        """Whether the trace of a message is stored within some seconds; else it was lost."""
        asked = ["queryMsgTraceById", "-n", self._facts["namesrv"], "-i", message_id]
        asked += shlex.split(TRACE_TOPIC)

        def is_stored() -> bool:
            return "Pub" in self._mqadmin(asked)["out"]

        try:
            wait_until(is_stored, "a stored trace", _TRACE_S, poll_s=0.2)
        except PeerError:
            return False
        return True

    def _mqadmin(self, arguments: Sequence[str], lines: int = 0) -> dict[str, Any]:
        asked = {"args": list(arguments), "lines": lines, "limit_ms": _LIMIT_MS}
        answer: dict[str, Any] = self._driver.call("mqadmin", **asked)
        return answer

    def _log(self, end: str) -> str:
        """What a monitor wrote, to the end of its first round."""
        lines: list[str] = []

        def is_complete() -> bool:
            texts = (
                path.read_text(errors="replace")
                for path in (self._directory / "driver").rglob("*.log")
            )
            lines[:] = [line for text in texts for line in _LOG_LINES.findall(text)]
            return any(end in line for line in lines)

        wait_until(is_complete, f"{end} in the log of {self.kind}", 120.0, poll_s=0.2)
        return "\n" + "\n".join(lines)

    def _exported(self, name: str) -> str:
        found = list((self._directory / "export").rglob(name))
        if len(found) != 1:
            return f"\n! {len(found)} files {name}"
        tree = loads_lenient(found[0].read_bytes())
        return "".join(f"\n{line}" for line in _members("", tree))

    def _plain(self, step: Step, text: str) -> list[str]:
        for name in ("namesrv", "broker", "client", "offset_id", "export"):
            text = text.replace(self._facts.get(name, name), f"<{name}>")
        text = text.replace(str(self._directory), "<directory>")
        text = "".join(" ".join(line.split()) + "\n" for line in text.splitlines())
        for pattern, sign in (*_VALUES, *(_NEWER_VALUES if self.line != "4.9" else ())):
            text = pattern.sub(sign, text)
        lines = [line for line in text.splitlines() if line and not _FRAME.match(line)]
        lines = [line for line in lines if not _OWN_GROUPS.match(line)]
        if step.masked:
            lines = [_NUMBERS.sub("#", _NUMBER.sub("#", line)) for line in lines]
        return sorted(lines) if step.rows else lines


def _members(path: str, tree: Any) -> list[str]:
    """One line for each leaf of a JSON tree, so that no order counts."""
    if not isinstance(tree, dict):
        return [f"{path} = {json.dumps(tree)}"]
    inner = (_members(f"{path}/{name}", tree[name]) for name in sorted(tree, key=str))
    return [line for lines in inner for line in lines]
