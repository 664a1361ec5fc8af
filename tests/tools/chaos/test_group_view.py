"""What is said of a group, by a name server and controllers that are played here."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from remoting.request_code import RequestCode
from tools.chaos import group_view
from tools.chaos.group_view import GroupView, epochs_of

SET = {
    "replicasInfoTable": {
        "chaos": {
            "masterBrokerId": 2,
            "inSyncReplicas": [{"brokerId": 2, "brokerAddress": "127.0.1.12:5"}],
            "notInSyncReplicas": [
                {"brokerId": 1, "brokerAddress": "127.0.1.11:4"},
                {"brokerId": 3, "brokerAddress": "127.0.1.99:9"},
            ],
        }
    }
}
EPOCHS = {"epochList": [{"epoch": 3, "startOffset": 0}, {"epoch": 4, "startOffset": 900}]}
ANSWERS: dict[str, dict[int, Any]] = {
    "one": {
        RequestCode.CONTROLLER_GET_METADATA_INFO: (0, {"isLeader": "false"}, b""),
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: (2007, {}, b""),
    },
    "two": {
        RequestCode.CONTROLLER_GET_METADATA_INFO: (0, {"isLeader": "true"}, b""),
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: (0, {}, json.dumps(SET).encode()),
        RequestCode.CONTROLLER_ELECT_MASTER: (2011, {}, b""),
    },
    "broker": {RequestCode.GET_BROKER_EPOCH_CACHE: (0, {}, json.dumps(EPOCHS).encode())},
    "namesrv": {},
}
NUMBERS = {"one": 1, "two": 2, "namesrv": 3, "broker": 4, "gone": 5}
asked: list[tuple[str, int, dict[str, str]]] = []


class PlayedClient:
    """A connection to one of those."""

    def __init__(self, address: tuple[str, int], _timeout_s: float) -> None:
        self._name = next(name for name, port in NUMBERS.items() if port == address[1])
        if self._name == "gone":
            raise ConnectionRefusedError

    def __enter__(self) -> PlayedClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, code: int, fields: dict[str, str]) -> Any:
        asked.append((self._name, code, fields))
        found, ext_fields, body = ANSWERS[self._name][code]
        return SimpleNamespace(code=found, ext_fields=ext_fields, body=body)

    def ask(self, request: Any) -> Any:
        return self.call(request.code, {})


class Group:
    namesrv_address = ("127.0.0.1", 3)
    controller_addresses: ClassVar[dict[str, tuple[str, int]]] = {
        name: ("127.0.0.1", number) for name, number in (("gone", 5), ("one", 1), ("two", 2))
    }

    def client_address(self, announced: str) -> tuple[str, int] | None:
        known = {"127.0.1.11:4": ("127.0.0.11", 4), "127.0.1.12:5": ("127.0.0.12", 5)}
        return known.get(announced)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> GroupView:
    monkeypatch.setattr(group_view, "FrameClient", PlayedClient)
    asked.clear()
    return GroupView(Group())


def test_the_leader_and_what_it_records(view: GroupView) -> None:
    assert view.leader() == "two"
    assert view.in_sync() == [("127.0.0.12", 5)]
    assert view.ids() == {("127.0.0.12", 5): 2, ("127.0.0.11", 4): 1}


def test_an_election_is_asked_of_the_leader(view: GroupView) -> None:
    assert view.elect(1) == 2011
    name, _code, fields = asked[-1]
    assert name == "two"
    wanted = {"clusterName": "ChaosCluster", "brokerName": "chaos", "brokerId": "1"}
    assert fields.items() >= {**wanted, "designateElect": "true"}.items()


def test_nobody_who_says_it(view: GroupView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "controller_addresses", {"gone": ("127.0.0.1", 5)})
    assert (view.leader(), view.in_sync(), view.ids(), view.elect(1)) == (None, [], {}, -1)


def test_whom_the_name_server_named_when(view: GroupView) -> None:
    client: Any = SimpleNamespace()

    def look(announced: str) -> None:
        # As a Java name server writes it: keys that are numbers stand bare.
        addresses = f'{{0:"{announced}",3:"127.0.1.13:6"}}'
        text = f'{{"brokerAddrTable":{{"chaos":{{"brokerAddrs":{addresses}}}}}}}'
        client.call = lambda _code, _fields: SimpleNamespace(body=text.encode())
        view._look(client)

    assert view.master is None
    look("127.0.1.11:4")
    time.sleep(0.05)
    look("127.0.1.12:5")
    look("127.0.1.99:9")
    assert view.master == ("127.0.0.12", 5)
    assert view.master_before(0.04) == ("127.0.0.11", 4)
    client.call = lambda _code, _fields: SimpleNamespace(body=b'{"brokerAddrTable":{}}')
    view._look(client)
    assert view.master == ("127.0.0.12", 5)


def test_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_view, "FrameClient", PlayedClient)
    assert epochs_of(("127.0.0.1", 4)) == [(3, 0), (4, 900)]
