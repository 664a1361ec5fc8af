"""Our controller over its socket, against what a 5.3.3 controller (DLedger kind) answered to the
same requests: codes, header fields and bodies (tests/golden/controller-5.3.3/probe.txt).

Remarks are our own words. Where a code differs on purpose it is said at the step.
"""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.controller.controller_peer import Peer, running

GOLDEN = Path(__file__).parents[1] / "golden" / "controller-5.3.3" / "probe.txt"
_LINE = re.compile(
    r"(?P<label>.{58}) code=(?P<code>\d+) remark=.*? ext=(?P<ext>\{.*?\}|None) body="
)
_INTEGER_KEY = re.compile(r"([{,])(\d+):")
GROUP = {"clusterName": "PC", "brokerName": "pb"}


class Said(NamedTuple):
    """One recorded answer."""

    label: str
    code: int
    ext: dict[str, str]
    body: Any


def _body(text: str) -> Any:
    return json.loads(_INTEGER_KEY.sub(r'\1"\2":', text)) if text else None


def _recorded() -> list[Said]:
    found = []
    for line in GOLDEN.read_text().splitlines():
        match = _LINE.match(line)
        if match is None:
            assert line.startswith("---"), line
            continue
        ext = ast.literal_eval(match["ext"]) or {}
        body = _body(line[match.end() :])
        found.append(Said(match["label"].strip(), int(match["code"]), ext, body))
    return found


class Replay:
    """Takes the recorded answers one after the other."""

    def __init__(self, port: int, said: list[Said]) -> None:
        self._said = iter(said)
        self.port = port
        self.peer = Peer(port)
        self.brokers: dict[int, Peer] = {}

    def ask(
        self,
        label: str,
        code: int,
        fields: dict[str, object],
        body: bytes = b"",
        *,
        ours: int | None = None,
        by: Peer | None = None,
    ) -> None:
        """The answer is the recorded one; ours: our code where it is another one on purpose."""
        said = next(self._said)
        assert said.label.startswith(label)
        answer = (by or self.peer).call(code, fields, body)
        if ours is not None:
            assert (said.code, answer.code) != (ours, said.code), "no longer different"
            assert answer.code == ours, answer.remark
            return
        assert answer.code == said.code, answer.remark
        assert answer.ext_fields == said.ext
        assert _body(answer.body.decode()) == said.body

    def skip(self, label: str) -> None:
        """What Java did and ours did not get to, as an earlier answer differs."""
        assert next(self._said).label.startswith(label)

    def elect(self, label: str, broker_id: int, **how: Any) -> None:
        fields = {**GROUP, "brokerId": broker_id, "designateElect": "false", "invokeTime": 1}
        fields["designateElect"] = how.pop("designate", "false")
        self.ask(label, 1002, fields, **how)

    def alter(self, label: str, master: int, epoch: int, members: list[int], known: int) -> None:
        body = json.dumps({"syncStateSet": members, "syncStateSetEpoch": known}).encode()
        fields = {"brokerName": "pb", "masterBrokerId": master, "masterEpoch": epoch}
        self.ask(label, 1001, {**fields, "invokeTime": 1}, body)

    def beat(
        self, broker_id: int, epoch: int = -1, end: int = 0, priority: int = 2**31 - 1
    ) -> None:
        answer = self.brokers[broker_id].call(
            904,
            {
                **GROUP,
                "brokerAddr": f"127.0.0.1:3130{broker_id}",
                "brokerId": broker_id,
                "epoch": epoch,
                "maxOffset": end,
                "confirmOffset": 0,
                "heartbeatTimeoutMills": 10_000,
                "electionPriority": priority,
            },
        )
        assert (answer.code, answer.remark) == (0, "Heart beat success")

    def close(self) -> None:
        for peer in (self.peer, *self.brokers.values()):
            peer.close()


@pytest.fixture
def said() -> list[Said]:
    found = _recorded()
    assert len(found) == 51
    return found


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with running(tmp_path, leader_warm_up_millis=500, scan_inactive_master_interval=100) as given:
        yield given


def test_before_a_master(port: int, said: list[Said]) -> None:
    replay = Replay(port, said)
    apply = {**GROUP, "registerCheckCode": "127.0.0.1:31301;1"}
    register = {**GROUP, "brokerAddress": "127.0.0.1:31311", "invokeTime": 1}
    answer = replay.peer.call(1005, {})
    metadata = next(replay._said)
    address = f"127.0.0.1:{port}"
    assert (answer.code, metadata.code) == (0, 0)
    assert answer.ext_fields == {
        **metadata.ext,
        "controllerLeaderAddress": address,
        "peers": f"n0:{address};",
    }
    replay.ask("1004 unknown set", 1004, {"brokerName": "pb"})
    replay.ask("1006 unknown set", 1006, {}, b'["pb"]')
    replay.ask("1006 no body", 1006, {})
    replay.elect("1002 unknown set", 1)
    replay.ask("1003 unknown set", 1003, {**register, "brokerId": 1})
    replay.ask("1012 unknown set", 1012, GROUP)
    replay.ask("1013 id 2 of unknown set", 1013, {**apply, "appliedBrokerId": 2})
    replay.ask("1013 id 1", 1013, {**apply, "appliedBrokerId": 1})
    replay.ask("1013 id 1 again", 1013, {**apply, "appliedBrokerId": 1})
    other = {**apply, "registerCheckCode": "127.0.0.1:31302;1", "appliedBrokerId": 1}
    replay.ask("1013 id 1, other code", 1013, other)
    replay.ask("1012", 1012, GROUP)
    # P16: only what 1012 offers is given.
    replay.ask("1013 id 7 (a gap)", 1013, {**apply, "appliedBrokerId": 7}, ours=2014)
    replay.skip("1012 after the gap")
    replay.ask("1004 no master yet", 1004, {"brokerName": "pb"})
    replay.ask("1003 id 1, no master yet", 1003, {**register, "brokerId": 1})
    replay.ask("1003 id 5 (never applied)", 1003, {**register, "brokerId": 5})
    replay.alter("1001 before any master", 1, 0, [1], 0)
    replay.brokers[1] = Peer(port)
    replay.beat(1)
    replay.skip("904")
    replay.ask("904 without id", 904, {**GROUP, "brokerAddr": "127.0.0.1:1"})
    # P13: nobody is elected who was given no id.
    replay.elect("1002 by 99", 99, ours=2010)
    replay.close()


def test_three_brokers(port: int, said: list[Said]) -> None:
    start = next(n for n, one in enumerate(said) if one.label == "1013 1")
    replay = Replay(port, said[start:])
    for broker_id in (1, 2, 3):
        replay.brokers[broker_id] = Peer(port)
        code = f"127.0.0.1:3130{broker_id};1"
        fields = {**GROUP, "appliedBrokerId": broker_id, "registerCheckCode": code}
        replay.ask(f"1013 {broker_id}", 1013, fields)
        replay.beat(broker_id)
    replay.elect("1002 by 2", 2)
    replay.elect("1002 by 1", 1)
    # The sender is looked at first; Java looks at the set.
    body = b'{"syncStateSet":[2],"syncStateSetEpoch":1}'
    alter = {"brokerName": "pb", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
    replay.ask("1001 equal set from wrong master", 1001, dict(alter), body, ours=2002)
    replay.alter("1001 wrong master", 1, 1, [1, 2], 1)
    replay.alter("1001 wrong master epoch", 2, 9, [1, 2], 1)
    replay.alter("1001 wrong set epoch", 2, 1, [1, 2], 9)
    replay.alter("1001 unknown member", 2, 1, [2, 8], 1)
    replay.alter("1001 without master", 2, 1, [1, 3], 1)
    replay.alter("1001 ok", 2, 1, [1, 2, 3], 1)
    # P18: a master whose first answer was lost learns that its set is in force.
    body = b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":1}'
    repeated: dict[str, object] = {**alter, "masterBrokerId": 2}
    replay.ask("1001 repeated (answer lost)", 1001, repeated, body, ours=0)
    replay.ask("1006", 1006, {}, b'["pb","nope"]')
    replay.elect("1002 designate 3", 3, designate="true")
    # Nobody has that id: 2010 says so, as it does without designateElect.
    replay.elect("1002 designate 9", 9, designate="true", ours=2010)
    replay.elect("1002 designate 1", 1, designate="true")
    replay.alter("1001 master 3", 3, 2, [1, 2, 3], 3)
    replay.beat(1, 2, 100, 1)
    replay.beat(2, 2, 200, 5)
    replay.beat(3, 2, 300)
    replay.brokers.pop(3).close()
    _wait_for_epoch(replay, 3)
    replay.ask("1004 after master 3 closed its channel", 1004, {"brokerName": "pb"})
    replay.ask("1006", 1006, {}, b'["pb"]')
    replay.alter("1001 by 2", 2, 3, [1, 2], 5)
    replay.beat(1, 3, 5000)
    replay.beat(1, 3, 10)
    replay.brokers.pop(2).close()
    _wait_for_epoch(replay, 4)
    replay.ask("1004 after master 2 closed", 1004, {"brokerName": "pb"})
    replay.close()


def _wait_for_epoch(replay: Replay, epoch: int) -> None:
    """The election after a closed connection is another event than the next request."""
    for _ in range(600):
        told = replay.peer.call(1004, {"brokerName": "pb"})
        if told.ext_fields["masterEpoch"] == str(epoch):
            return
        time.sleep(0.1)
    raise AssertionError(f"no election: {told.ext_fields}")
