"""The net under the hot routes: whatever is asked, a broker with them and one without them store,
answer, count and keep the same (tests/broker/twins.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import hypothesis
import pytest
from hypothesis import given

from ha.control_slots import MemberRole
from remoting.request_code import RequestCode as Code
from tests.broker.twin_requests import (
    ACK,
    END,
    HALF,
    MOST_BODY,
    POP,
    PULL,
    SEND,
    Ask,
    Turn,
    batch_body,
    heartbeat_body,
    histories,
    named,
)
from tests.broker.twins import ROWS, Twin, Twins, is_of_pool
from tests.remoting.golden_frames import golden_frames

_EXAMPLES = max(1, hypothesis.settings.default.max_examples // 3)  # type: ignore[union-attr]
"""Of each row: 10, in a long run 333."""
_HOT = (10, 310, 320, 11, 361, 34, 37, 36, 324, 325, 200050, 200051)
_PLAIN = ((0, b"one", b""), (7, b"two", b"KEYS\x01k"))


class Net:
    """Twins of one row, new ones after each difference. Plays histories."""

    def __init__(self, row: str) -> None:
        self._row = row
        self._twins: Twins | None = None

    def close(self) -> None:
        if self._twins is not None:
            self._twins.close()
            self._twins = None

    def play(self, *history: Turn) -> None:
        """See Twins.play. Played once, all is as usual again."""
        if self._twins is None:
            self._twins = Twins(ROWS[self._row])
        try:
            self._twins.play(history)
        except BaseException:
            self.close()
            raise


@pytest.fixture(scope="module", params=ROWS)
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    net = Net(request.param)
    yield net
    net.close()


@hypothesis.settings(max_examples=_EXAMPLES, phases=[hypothesis.Phase.generate])
@given(history=histories)
def test_whatever_is_asked(net: Net, history: list[Turn]) -> None:
    """What differs is not made smaller, which would take minutes: each try needs new twins."""
    net.play(*history)


def heartbeat(signer: str = "member") -> Ask:
    return Ask(34, {}, heartbeat_body(), signer=signer)


def send(body: bytes = b"body", **fields: object) -> Ask:
    return Ask(310, SEND | fields, body)


def batch(*items: tuple[int, bytes, bytes], **fields: object) -> Ask:
    return Ask(320, SEND | {"m": "true", **fields}, batch_body(items))


FOUND = {
    "an ack is answered without extFields": [[Ask(200050, POP)], [Ask(200051, ACK)]],
    "an ack of nothing that was popped": [
        [Ask(200051, ACK | {"extraInfo": "0 1700000000000 60000 0 0 broker-a 0 0"})]
    ],
    "the same heartbeat of another account": [
        *([heartbeat()] for _ in range(2)),
        [heartbeat("application")],
        [heartbeat("nobody")],
    ],
    "lite topics": [
        [send(i="__LITE_TOPIC\x01s1"), send(i="__LITE_TOPIC\x01s1\x02INNER_MULTI_DISPATCH\x01x")],
        [send(i="__LITE_TOPIC\x01a b"), send(i="__LITE_TOPIC\x01"), send()],
        [Ask(11, PULL | {"liteTopic": lite}) for lite in ("s1", "", "a b")],
        [Ask(361, PULL | {"liteTopic": "s1"}, binary=True)],
        [Ask(200050, POP)],
        [Ask(200051, ACK | {"liteTopic": "s1"}), Ask(200051, ACK | {"liteTopic": ""})],
    ],
}
"""What has once come out differently: turns."""
USUAL = {
    "sends": [[send(), send(e="3", i="TAGS\x01A\x02UNIQ_KEY\x01U"), send(b="Tags"), send(b"")]],
    "who waits": [
        [send(i="WAIT\x01false"), send(i="WAIT\x01true"), batch(*_PLAIN, i="WAIT\x01false")],
        [send(reportDurability="true"), batch(*_PLAIN, reportDurability="true"), send()],
    ],
    "odd handles": [
        [Ask(200051, ACK | {"extraInfo": f"{start} {popped} {invisible} 0 0 broker-a 0 0"})]
        for start, popped, invisible in (
            *((0, 1_700_000_000_000, 1 << 62), (0, 1_800_000_000_000, 60_000), (-1, 0, 0)),
            *((9_999, 1_700_000_000_000, 60_000), (0, 1_700_000_000_000, -5)),
        )
    ],
    "orders": [[send(i="__SHARDINGKEY\x01s"), batch(*_PLAIN, i="__SHARDINGKEY\x01s")]],
    "code 10": [[Ask(10, named(10, SEND))] * 3],
    "batches": [
        [batch(*_PLAIN), batch(*_PLAIN, i="UNIQ_KEY\x01U"), batch((0, b"x", b"DELAY\x013"))]
    ],
    "delays": [[send(i="DELAY\x013\x02KEYS\x01k"), send(i="DELAY\x0118"), send(i="DELAY\x0199")]],
    "light queues": [
        [send(i="INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b"), send(b="%LMQ%a"), send()],
        [
            send(i="INNER_MULTI_DISPATCH\x01a/b"),
            batch((0, b"x", b"INNER_MULTI_DISPATCH\x01%LMQ%a")),
        ],
    ],
    "transactions": [
        *([[send(i=HALF, f="4")], [Ask(37, END)], [Ask(37, END)]]),
        *([[send(i=HALF)], [Ask(37, END | {"commitOrRollback": "12"})], [Ask(37, END)]]),
    ],
    "pulls": [
        [send(), send(), send()],
        *([Ask(11, PULL | {"queueOffset": str(offset)})] for offset in range(5)),
        [Ask(361, PULL), Ask(11, PULL, binary=True), Ask(11, PULL | {"queueOffset": "9999"})],
    ],
    "pops": [[send()], *([Ask(200050, POP)], [Ask(200051, ACK)]) * 2],
    "letters of a code 10": [
        [Ask(10, named(10, SEND) | {"b": "Another", "e": "3", "i": "KEYS\x01a"})]
    ],
    "sizes": [
        *([send(i=text + "\x02X\x01" + "x" * 32_700)] for text in (HALF, "DELAY\x013", "a\x01b")),
        *([send(bytes(MOST_BODY + 1), i=text)] for text in (HALF, "DELAY\x013", "a\x01b")),
    ],
    "the next file": [[send(bytes(1_500), i=HALF), send(bytes(1_500), i="DELAY\x013")] * 2] * 4,
    "binary": [
        [Ask(310, SEND, b"x", binary=True), Ask(320, SEND, b"x", binary=True)],
        [
            Ask(310, SEND | {"e": queue, "i": f"KEYS\x01{key}"}, b"x", binary=True)
            for queue in ("0", "3", "9")
            for key in "abcdefghi"
        ],
        [Ask(310, SEND | {"i": HALF, "f": "4"}, b"x", binary=True)] * 3,
        [send(), *[Ask(310, SEND, b"x", binary=True)] * 3, send()],
    ],
}
"""What clients do: turns. All of it takes the hot routes, where access control does not forbid."""


_PRIORITY = "_SYS_MSG_PRIORITY_\x01"
BESIDE = {
    "priorities": [
        [send(), send(i=f"{_PRIORITY}2\x02KEYS\x01k"), send(i=f"{_PRIORITY}9", e="1"), send()],
        [Ask(10, named(10, SEND | {"i": f"{_PRIORITY}1"})), send(i=f"{_PRIORITY}x")],
        [Ask(310, SEND | {"i": f"{_PRIORITY}1"}, b"x", binary=True), send()],
        [send(i=f"{_PRIORITY}1\x02{other}") for other in (HALF, "DELAY\x013")],
        [send(i=f"__SHARDINGKEY\x01s\x02{_PRIORITY}1"), batch(*_PLAIN, i=f"{_PRIORITY}1")],
        [batch((0, b"x", f"{_PRIORITY}1".encode())), send(b="Tags", i=f"{_PRIORITY}3")],
    ],
}
"""What the hot routes leave to the general path, among what they take."""


@pytest.mark.parametrize("name", [*FOUND, *USUAL, *BESIDE])
def test_what_clients_do_and_what_once_differed(net: Net, name: str) -> None:
    turns = [Turn(list(asks)) for asks in {**FOUND, **USUAL, **BESIDE}[name]]
    net.play(*turns, Turn(event="long time"), Turn(event="room"))


BETWEEN = {
    "a commit for a topic that is being deleted": [
        Turn([send(i=HALF)], event="block"),
        Turn([Ask(37, END)], event="deleted"),
        Turn([Ask(37, END)]),
    ],
    "a commit for a topic that is gone": [
        Turn([send(i=HALF)], event="gone"),
        Turn([Ask(37, END)], event="back"),
        Turn([Ask(37, END)]),
    ],
    "a run while a topic is being deleted": [
        Turn([send()], event="block"),
        Turn([send(), send(b="Tags"), batch(*_PLAIN)], event="deleted"),
        Turn([send(), send(), batch(*_PLAIN)]),
    ],
    "other settings of a topic": [
        Turn([send(e="3")], event="changed"),
        Turn([send(e="3"), send(e="2"), batch(*_PLAIN, e="3")], event="back"),
        Turn([send(e="3")]),
    ],
}
"""What happens between requests."""


@pytest.mark.parametrize("name", BETWEEN)
def test_what_happens_between_requests(net: Net, name: str) -> None:
    net.play(*BETWEEN[name])


LEAST: Final[dict[str, tuple[Callable[[Twin], object], int, str]]] = {
    "no lease": (Twin.end_lease, 14, "no controller has confirmed this master lately"),
    "puts refused": (lambda twin: twin.refuse_puts(1), 1, "minInSyncReplicas"),
    "follower": (lambda twin: twin.order(MemberRole.FOLLOW), 14, "this broker is a slave"),
    "fenced": (lambda twin: twin.order(MemberRole.FENCED), 14, "this broker is a slave"),
}
"""What happens to a leader, and what sends are answered then: the code and some of the remark."""


@pytest.mark.parametrize("name", LEAST)
def test_a_leader_that_may_not_put(name: str) -> None:
    """Whatever stores is refused by each road, also the commit of a half that it has taken; when it
    leads again, all is stored."""
    twins = Twins(ROWS["leader"])
    twins.ask(send(i=HALF))
    happens, code, remark = LEAST[name]
    twins.each(happens)
    for twin in twins.pair:
        # Who leads no more knows nothing of what waits; the next leader finds it in the log.
        waiting = twin.controller._stats.transactions.waiting.counts()
        assert [row.halves for row in waiting] == ([] if name in ("follower", "fenced") else [1])
    start = twins.compared
    for ask in (
        send(),
        batch(*_PLAIN),
        send(i=HALF),
        send(i="DELAY\x013"),
        Ask(10, named(10, SEND)),
    ):
        (answer,) = twins.ask(ask)
        assert (answer.code, remark in (answer.remark or "")) == (code, True), answer
    (commit,) = twins.ask(Ask(37, END))
    assert commit.code != 0
    twins.compare()
    assert twins.compared == start, "nothing was stored"
    twins.each(lambda twin: twin.order(MemberRole.LEAD))
    twins.each(Twin.room)
    twins.answers()
    answers = twins.ask(send(), batch(*_PLAIN)) + twins.ask(Ask(37, END))
    assert [answer.code for answer in answers] == [0, 0, 0]
    twins.compare()
    twins.close()


def test_the_hot_routes_are_really_taken() -> None:
    """Else the comparison compares nothing: of all that clients do, what is refused is the general
    path's."""
    twins = Twins(ROWS["plain"])
    twins.ask(send(b="Tags"))
    twins.taken.clear()
    for name in ("sends", "orders", "code 10", "batches"):
        for asks in USUAL[name]:
            twins.ask(*asks)
    assert set(twins.taken) == {Code.SEND_BATCH_MESSAGE}, "an item with a delay is refused"
    twins.taken.clear()
    young = len(twins.hot.young)
    twins.ask(send(i=HALF), send(i="DELAY\x013"), Ask(310, SEND, b"x", binary=True))
    assert len(twins.hot.young) == young + 1
    twins.ask(Ask(37, END))
    assert len(twins.hot.young) == young, "it has ended"
    twins.ask(Ask(200050, POP))
    twins.ask(Ask(200051, ACK))
    twins.ask(Ask(11, PULL), Ask(361, PULL), Ask(11, PULL, binary=True))
    twins.ask(heartbeat())
    twins.ask(heartbeat())
    assert twins.taken in ([], [Code.HEART_BEAT]), "the first heartbeat changes something"
    twins.close()


def test_golden_requests() -> None:
    """Of Java clients, in the order of their capture; each is asked twice in a turn, since the
    first one makes its topic."""
    twins = Twins(ROWS["plain"])
    seen: set[int] = set()
    for frame in golden_frames(side="request"):
        code = frame.command().code
        if code in _HOT:
            seen.add(code)
            for data in [frame.frame] * 2 if is_of_pool(code) else [frame.frame * 2]:
                twins.feed(data)
    twins.compare()
    assert seen >= {310, 320, 11, 34, 37}
    twins.close()


def test_an_ack_is_answered_as_java_answers_it() -> None:
    """A broker of 5.5.0, captured: but for the language and the version."""
    java = b'{"code":0,"flag":1,"language":"JAVA","opaque":341,"serializeTypeCurrentRPC":"JSON",'
    twins = Twins(ROWS["plain"])
    twins.ask(Ask(200050, POP))
    twins.hot.clients[0].feed(Ask(200051, ACK).frame(341, twins.known, {}))
    twins.hot.turn()
    answer = twins.hot.answered()[0]
    assert answer[8:].startswith(java.replace(b"JAVA", b"PYTHON"))
    twins.close()
