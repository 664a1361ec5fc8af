"""What a view is called with in tests: a snapshot made by hand, and brokers that answer questions.

Helper of the tests beside it. `shown` makes the whole page and its live regions, as the
console does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.testclient import TestClient

from console.app import ConsoleApp, Site
from console.history import History
from console.jobs import Jobs
from console.kept_answers import Answer
from console.lanes import ANSWER_ERRORS, WAITING, Lanes, Question
from console.page import Page, Query, Reader, View
from console.received_client import ReceivedClient
from console.render import render_regions
from console.snapshot import BrokerSeen, ClusterSnapshot, HaTold, Metrics, Told
from console.tables import ShownTable
from remoting.body.ha_runtime_info import HARuntimeInfo
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient, BrokerAddress, NameServers
from tools.errors import BrokerAnswerError

NOW = 1_800_000_000_000
HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e'\"&" + "n" * 300
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_VALUES = re.compile(r'<input[^>]* value="[^"]*"|<option value="[^"]*"')
"""A form must send a name as it is."""
NOT_KNOWN = "CODE: REQUEST_CODE_NOT_SUPPORTED(3) request type 28913 not supported"


class Client:
    """Answers an action's requests; remembers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Any]] = []

    def call(self, address: str, code: int, header: Any = None, *_: Any, **__: Any) -> None:
        self.asked.append((address, code, header))


@dataclass
class Answers:
    """In place of the lanes: answers by address and question's key."""

    values: dict[tuple[str, Hashable], Any] = field(default_factory=dict)
    asked: list[tuple[str, Hashable]] = field(default_factory=list)

    def known(self, _kind: str, _account: Hashable) -> list[tuple[Hashable, Any]]:
        return []

    def ask(
        self,
        address: str,
        question: Question[Any],
        max_age_ms: int,
        account: Hashable = None,
        patience_ms: int = 0,
        *,
        is_later: bool = False,
    ) -> Answer[Any]:
        self.asked.append((address, question.key))
        value = self.values.get((address, question.key), ValueError(f"{address} is silent"))
        return Answer(error=str(value)) if isinstance(value, Exception) else Answer(value, 1)


Reply = Callable[[Any], Any]
"""From a request's header to what is encoded as the answer's body: JSON, unless it is bytes."""


class Peers(AdminClient):
    """Name server ns:1 and brokers: what each answers, and what it was asked. What it does not know
    it refuses."""

    def __init__(self, answers: Mapping[tuple[str, int], Reply | Any]) -> None:
        self.name_servers = NameServers(("ns:1",))
        self.now_ms = lambda: NOW
        self.answers = dict(answers)
        self.asked: list[tuple[str, int, Any]] = []

    def call(
        self,
        address: str,
        code: RequestCode,
        header: Any = None,
        body: bytes = b"",
        **how: Any,
    ) -> RemotingCommand:
        """As AdminClient's."""
        self.asked.append((address, code, header))
        answer = self.answers.get((address, code), REFUSED)
        answer = answer(header) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):
            response_code, remark = answer
            if response_code not in how.get("accept", (0,)):
                raise BrokerAnswerError(address, response_code, remark)
            return RemotingCommand.request(code, {}).response(response_code, remark)
        if isinstance(answer, RemotingCommand):
            return answer
        if not isinstance(answer, bytes):
            answer = json.dumps(answer).encode()
        return RemotingCommand.request(code, {}).response(0, body=answer)

    def codes(self, address: str) -> list[int]:
        """What one peer was asked, sorted."""
        return sorted(int(code) for asked, code, _ in self.asked if asked == address)


REFUSED: Final = (3, "request type not supported")


class PeerLanes:
    """In place of the lanes: each question is asked at once, once; `silent` peers never answer."""

    def __init__(self, peers: Peers, silent: Collection[str] = ()) -> None:
        self.peers = peers
        self.silent = silent
        self.silent_questions: Collection[str] = ()
        """By how their keys begin."""
        self.known_answers: dict[tuple[str, Hashable], Answer[Any]] = {}
        self.waited = 0

    def known(self, kind: str, _account: Hashable) -> list[tuple[Hashable, Any]]:
        """As the lanes'."""
        return [
            (key, answer.value)
            for (_, key), answer in self.known_answers.items()
            if isinstance(key, tuple) and key[0] == kind
        ]

    def ask(
        self, address: str, question: Question[Any], *_: Any, is_later: bool = False
    ) -> Answer[Any]:
        """As the lanes'."""
        self.waited += not is_later
        kind = question.key[0] if isinstance(question.key, tuple) else question.key
        if address in self.silent or kind in self.silent_questions:
            return Answer(error=WAITING)
        key = (address, question.key)
        if key not in self.known_answers:
            client = ReceivedClient(self.peers, question.most_bytes)
            try:
                self.known_answers[key] = Answer(question.run(client, address), 1)
            except ANSWER_ERRORS as error:
                return Answer(error=str(error))
        return self.known_answers[key]


def peer_reader(
    peers: Peers, *brokers: BrokerSeen, silent: Collection[str] = (), **parts: Any
) -> Reader:
    """Who looks at brokers that answer requests."""
    lanes = cast(Any, PeerLanes(peers, silent))
    topics = parts.pop("topics", ())
    made = reader(*brokers, answers=lanes, client=peers, **parts)
    return replace(made, snapshot=replace(made.snapshot, topics=Told(tuple(topics), NOW)))


def seen(name: str = "b", broker_id: int = 0, **parts: Any) -> BrokerSeen:
    """A broker; `metrics` of ours are samples by name, `java` one without metrics."""
    place = BrokerAddress("C", name, broker_id, f"{name[:10]}{broker_id}:10911")
    made = BrokerSeen(place, runtime=Told({"brokerVersionDesc": "V5_3_3"}, NOW, wall_ms=NOW))
    if "ha" in parts and isinstance(parts["ha"], HARuntimeInfo):
        parts["ha"] = told_ha(parts["ha"])
    if "metrics" in parts and not isinstance(parts["metrics"], Told):
        parts["metrics"] = Told(Metrics(parts["metrics"]), NOW, wall_ms=NOW)
    return replace(made, **parts)


def java(name: str = "j", **parts: Any) -> BrokerSeen:
    """A broker that does not know request 28913."""
    return seen(name, metrics=Told(None, 0, NOT_KNOWN, NOW), **parts)


def told_ha(info: HARuntimeInfo) -> Told[HaTold]:
    return Told(HaTold(info, json.loads(info.to_json_bytes())), NOW, wall_ms=NOW)


def reader(*brokers: BrokerSeen, answers: Answers | None = None, **parts: Any) -> Reader:
    """Who looks at these brokers now."""
    client = parts.pop("client", None) or Client()
    snapshot = ClusterSnapshot(
        number=1,
        taken_ms=NOW,
        taken_at_ms=NOW,
        brokers=tuple(sorted(brokers, key=lambda broker: broker.place)),
        names={"ns:1": Told({}, NOW)},
        _by_address={broker.place.address: broker for broker in brokers},
    )
    history = parts.pop("history", None) or History()
    lanes = cast(Lanes, answers or Answers())
    made = Reader(
        snapshot,
        history,
        lanes,
        Jobs(lambda: NOW),
        lambda _: cast(AdminClient, client),
        (),
        NOW,
        NOW,
    )
    return replace(made, **parts)


def page(function: Callable[[Reader, Query], Page], who: Reader, **fields: str) -> Page:
    """What a view gives."""
    return function(who, Query(fields))


def rows(found: Page, name: str) -> list[dict[str, Any]]:
    """The rows of one of its tables, as its JSON has them."""
    (table,) = [table for table in found.tables if table.name == name]
    return table.data()


def texts(found: Page, name: str) -> list[list[str]]:
    """The rows as a reader sees them."""
    (table,) = [table for table in found.tables if table.name == name]
    return [[cell.text for cell in row] for row in ShownTable(table, "/", {}).rows]


def shown(view: View, who: Reader, query: Mapping[str, str] = {}) -> str:
    """The page as HTML; its live regions are made, too, and are a part of it."""
    site = Site(
        views=[view],
        reader_of=lambda _request: who,
        snapshot=lambda: who.snapshot,
        frame=lambda _request: {"may_change": who.may_change},
    )
    app = ConsoleApp(site)
    with TestClient(app.application(), raise_server_exceptions=True) as browser:
        answer = browser.get(view.path, params=query)
        assert answer.status_code == 200, answer.text
        assert browser.get(view.path + ".json", params=query).status_code == 200
    scope = {
        "type": "http",
        "method": "GET",
        "path": view.path,
        "query_string": b"",
        "headers": [],
        "server": ("c", 80),
        "scheme": "http",
    }
    found = view.function(who, Query(query))
    regions = render_regions(view.template, app._context(view, found, Request(scope)))
    turned = _TURNS.search(_VALUES.sub("", answer.text))
    assert turned is None, turned.string[turned.start() - 200 : turned.end()]
    for name, html in regions.items():
        assert f'id="{name}"' in answer.text
        assert html.strip()
    return answer.text
