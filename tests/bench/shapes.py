"""The kinds of loads that bin/bench compare measures: what each does with a running broker.

Runs in the process of the benchmark. A shape runs within a session of the setup that it names and
gives the figures of one run: msg_per_s, p50_us, p99_us, p999_us, refused (sends that got no
SUCCESS: a Java broker in haste answers "busy"), cpu_us (of all processes of the broker, a message,
dispatch and flush included), rss_anon_max; of a stream publish_p50_us …; for boots seconds and
store_gb; of idle memory mib and rss_mib.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from tests.bench.busy_loops import busy_loops
from tests.bench.goals import Goal
from tests.bench.measuring import JAVAS, KINDS, MIB, RECORD_OVERHEAD
from tests.bench.session import Session

TAGS: Final = 10
"""Of messages for filters: each tenth of a queue is kept."""

_GROUP: Final = "bench-pull"
_LATENCIES: Final = ("p50_us", "p99_us", "p999_us", "max_us")
_FILL_BODY: Final = 1024
_FILL_TOPIC: Final = "bench-fill"
_OPEN_WINDOW: Final = 256
_FILL_RECORD: Final = _FILL_BODY + RECORD_OVERHEAD
_BEFORE_KILL: Final = 20_000


class LostError(Exception):
    """Messages were lost, came twice, or were not those that had been sent."""


class Shape(Protocol):
    """One row."""

    @property
    def name(self) -> str: ...
    @property
    def setup(self) -> str: ...
    @property
    def goals(self) -> tuple[Goal, ...]: ...
    @property
    def beside(self) -> str: ...
    @property
    def sides(self) -> tuple[str, ...]: ...
    @property
    def is_once(self) -> bool: ...
    def run(self, session: Session) -> dict[str, float]: ...


def has_limit(shape: Shape) -> bool:
    """Whether stripped_broker.py runs it, too."""
    return any(goal.figure == "of_limit" for goal in shape.goals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What all shapes have."""

    name: str
    setup: str = "plain"
    goals: tuple[Goal, ...] = ()
    beside: str = ""
    """Another row: what is asked for here besides is what the difference costs."""
    sides: tuple[str, ...] = (*KINDS, *JAVAS)
    """Who is measured."""
    is_once: bool = False
    """Measured in the last round only: it takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Row):
    """Closed loop: `inflight` requests outstanding on each connection. options: loadgen's."""

    conns: int
    inflight: int
    body: int
    total: int
    batch: int = 1
    options: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    def run(self, session: Session) -> dict[str, float]:
        session.make_topic(self.topic)
        return send_figures(session.measured(lambda: self.fill(session)))

    def fill(self, session: Session) -> dict[str, float]:
        """The sends alone; the topic keeps what they counted."""
        total = session.lengths.count(self.total, self.batch)
        arguments = (self.conns, self.inflight, total, self.body, f"batch={self.batch}")
        figures = session.load("send", self.topic, *arguments, *self.options)
        session.sent[self.topic] = figures
        return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop(Row):
    """`rate` messages a second for `seconds`, beside `busy` processes that only use a core."""

    rate: int
    body: int
    seconds: float
    busy: int = 0

    def run(self, session: Session) -> dict[str, float]:
        topic = f"bench-{self.name}"
        session.make_topic(topic)
        total = max(1, int(self.rate * self.seconds * session.lengths.seconds))

        def load() -> dict[str, float]:
            with busy_loops(self.busy):
                arguments = (4, _OPEN_WINDOW, total, self.body, f"rate={self.rate}")
                return session.load("send", topic, *arguments)

        return send_figures(session.measured(load))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull(Row):
    """Drains what `source` sent. expression: "tag=..." or "sql=...", which keeps one of its kinds.

    Speed and CPU are those of the messages that were scanned. Raises LostError when the count of
    messages that came is not the count of those that had been taken.
    """

    source: Send
    batch: int = 32
    expression: str = ""
    is_orderly: bool = False

    def run(self, session: Session) -> dict[str, float]:
        topic = self.source.topic
        if topic not in session.sent:
            session.make_topic(topic)
            self.source.fill(session)
        options = [self.expression] if self.expression else []
        if self.is_orderly:
            options.append(f"lock={session.broker.name}")
        expected = self._expected(session)
        group = f"{_GROUP}-{self.name}"
        figures = session.measured(
            lambda: session.load("pull", topic, group, 4, self.batch, *options)
        )
        if figures["received"] != expected:
            received = figures["received"]
            raise LostError(f"{self.name}: {expected:.0f} sent, {received:.0f} received")
        per_s = figures["msg_per_s"] * figures["received"] / figures["msgs"]
        return {
            "messages": figures["msgs"],
            "received": figures["received"],
            "msg_per_s": figures["msg_per_s"],
            "received_per_s": per_s,
            **_used(figures, figures["msgs"]),
        }

    def _expected(self, session: Session) -> float:
        """How many messages a pull has to bring: those that made the topic are of no kind."""
        sent = session.sent[self.source.topic]
        if self.expression:
            return sent["kind0"]
        return sent["total"] - sent["not_success"] + session.first_sends[self.source.topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPoll(Row):
    """From the due time of a send to the arrival at a consumer that waits for it."""

    rate: int
    body: int
    seconds: float

    def run(self, session: Session) -> dict[str, float]:
        topic = f"bench-{self.name}"
        session.make_topic(topic)
        total = max(1, int(self.rate * self.seconds * session.lengths.seconds))
        arguments = (f"{_GROUP}-{self.name}", 4, self.rate, total, self.body)
        figures = session.measured(lambda: session.load("longpoll", topic, *arguments))
        _refuse_lost(self.name, figures)
        return send_figures(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSend(Row):
    """Synchronous sends of the official client of a language, "java" or "go"."""

    language: str
    threads: int
    body: int
    total: int

    def run(self, session: Session) -> dict[str, float]:
        client = session.client(self.language)
        total = session.lengths.count(self.total, self.threads)
        topic = f"bench-{self.name}"
        return send_figures(
            session.measured(lambda: client.send(topic, self.threads, total, self.body))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Row):
    """Java's producer and push consumer: from the moment a message was due to its listener, and,
    as publish_…, to the answer to its send. Beside `busy` processes that only use a core."""

    rate: int
    body: int
    seconds: float
    queues: int = 8
    busy: int = 0

    def run(self, session: Session) -> dict[str, float]:
        client = session.stream_client()
        total = max(1, int(self.rate * self.seconds * session.lengths.seconds))

        def load() -> dict[str, float]:
            with busy_loops(self.busy):
                return client.stream(f"bench-{self.name}", self.queues, self.rate, total, self.body)

        figures = session.measured(load)
        _refuse_lost(self.name, figures)
        publish = {name: figures[name] for name in figures if name.startswith("publish_")}
        return {**send_figures(figures), **publish}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleMemory(Row):
    """Anonymous memory of all processes together, from before the first load: `mib` as the machine
    has it, `rss_mib` with what they share counted once for each. See memory_budget.py."""

    def run(self, session: Session) -> dict[str, float]:
        return {
            "mib": sum(each.share for each in session.idle) / MIB,
            "rss_mib": sum(each.resident for each in session.idle) / MIB,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot(Row):
    """The time to the boot line on a store of `gb` GB, after a clean stop or after SIGKILL of all
    processes, with the last sends just answered."""

    gb: float
    is_killed: bool

    def run(self, session: Session) -> dict[str, float]:
        if _FILL_TOPIC not in session.sent:
            self._send(session, session.lengths.count(int(self.gb * 1e9 / _FILL_RECORD)))
        if self.is_killed:
            self._send(session, session.lengths.count(_BEFORE_KILL))
            session.broker.kill()
        else:
            session.wait_quiet()
            session.broker.stop()
        stored = session.sent[_FILL_TOPIC]["stored"] * _FILL_RECORD
        return {"store_gb": stored / 1e9, "seconds": session.boot_s()}

    def _send(self, session: Session, count: int) -> None:
        figures = session.load("send", _FILL_TOPIC, 4, 64, count, _FILL_BODY)
        stored = session.sent.get(_FILL_TOPIC, {}).get("stored", 0)
        taken = figures["total"] - figures["not_success"]
        session.sent[_FILL_TOPIC] = {"stored": stored + taken}


def _refuse_lost(name: str, figures: dict[str, float]) -> None:
    if figures["missing"] or figures["duplicates"]:
        missing, twice = figures["missing"], figures["duplicates"]
        raise LostError(f"{name}: {missing:.0f} missing, {twice:.0f} came twice")


def send_figures(figures: dict[str, float]) -> dict[str, float]:
    """A run's figures from those of the load; rates and CPU are of the messages that were taken."""
    refused = figures["not_success"]
    messages = figures["total"] - refused
    if messages <= 0:
        raise LostError(f"no send was taken: {figures}")
    given = {name: figures[name] for name in _LATENCIES}
    per_s = figures["msg_per_s"] * messages / figures["total"]
    run = {"messages": messages, "msg_per_s": per_s, **given, "refused": refused}
    if "tls" in figures:
        run["tls"] = figures["tls"]
    if "syncs" in figures:
        run["syncs_per_s"] = figures["syncs"] * figures["msg_per_s"] / figures["total"]
    return {**run, **_used(figures, messages)}


def _used(figures: dict[str, float], messages: float) -> dict[str, float]:
    return {
        "cpu_us": figures["cpu_s"] * 1e6 / messages,
        "rss_anon_max": figures["rss_anon_max"],
    }
