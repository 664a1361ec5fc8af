"""tools.chaos.rights_load: each way in which a broker may forget a change of rights is found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from tools.chaos import rights_load
from tools.chaos.rights_load import RightsLoad, write_accounts

CHANGED, STEADY = "mqchaos-changed", "mqchaos-steady"
REFUSED = "org.apache.rocketmq.acl.common.AclException: No default permission for topic:ChaosRights"


class Broker:
    """One topic, two accounts, and what it gets wrong."""

    def __init__(self) -> None:
        self.bodies: list[int] = []
        self.has_right = True
        self.forgets: set[str] = set()
        """Of "send", "pull", "pop", "held", "steady", "given back", "change"."""
        self.is_lost_at_change = False


class Client:
    """A FrameClient."""

    def __init__(self, broker: Broker, account: str | None) -> None:
        self._broker = broker
        self._account = account
        self.peer = ("127.0.0.1", 1)
        self._held: list[RemotingCommand] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def max_offset(self, _topic: str, _queue_id: int) -> int:
        return len(self._broker.bodies)

    def post(self, request: RemotingCommand) -> None:
        self._held.append(request)

    def take(self, opaque: int, _timeout_s: float) -> Any:
        (request,) = (each for each in self._held if each.opaque == opaque)
        if "held" in self._broker.forgets:
            return answered(0, body=self._broker.bodies[-1:])
        return self.ask(request)

    def call(self, code: int, fields: dict[str, Any]) -> Any:
        assert code == Code.UPDATE_AND_CREATE_ACL_CONFIG
        assert self._account is None
        if self._broker.is_lost_at_change:
            raise ConnectionResetError
        if "change" in self._broker.forgets:
            return answered(1, "no")
        self._broker.has_right = fields["topicPerms"] == "ChaosRights=PUB|SUB"
        return answered(0)

    def ask(self, request: RemotingCommand) -> Any:
        broker, fields = self._broker, request.ext_fields
        code = Code(request.code)
        name = {
            Code.SEND_MESSAGE_V2: "send",
            Code.PULL_MESSAGE: "pull",
            Code.POP_MESSAGE: "pop",
        }[code]
        may = self._account is None or broker.has_right or name in broker.forgets
        if self._account == CHANGED and broker.has_right and "given back" in broker.forgets:
            may = False
        if self._account == STEADY:
            may = "steady" not in broker.forgets
        if not may:
            return answered(1, REFUSED)
        if name == "send":
            broker.bodies.append(int(request.body))
            return answered(0)
        if name == "pop" and not ("pop" in broker.forgets and not broker.has_right):
            return answered(210, "nothing")
        at = int(fields.get("queueOffset", 0))
        return answered(0, body=broker.bodies[at:]) if broker.bodies[at:] else answered(19, "end")


def answered(code: int, remark: str | None = None, body: Any = ()) -> Any:
    return SimpleNamespace(code=code, remark=remark, body=body)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()

    def client(_address: object, _timeout_s: float, _source: object = None, by: Any = None) -> Any:
        return Client(found, None if by is None else by.access_key)

    def decode(numbers: list[int]) -> list[Any]:
        return [SimpleNamespace(body=b"%d" % number) for number in numbers]

    monkeypatch.setattr(rights_load, "FrameClient", client)
    monkeypatch.setattr(rights_load, "decode_messages", decode)
    return found


def load_of() -> RightsLoad:
    return RightsLoad(lambda: ("127.0.0.1", 1), 1)


def step(load: RightsLoad, broker: Broker) -> bool:
    done = load.step(Client(broker, None))  # type: ignore[arg-type]
    load.done += done
    return done


def test_a_broker_that_keeps_its_word(broker: Broker) -> None:
    load = load_of()
    assert step(load, broker)
    assert step(load, broker)
    assert load.violations == []
    assert (load.held, load.refused) == (4, 2 * 11 + 9)
    assert load.violations_of(("127.0.0.1", 1), 1e12, "slave") == []


@pytest.mark.parametrize("what", ["send", "pull", "pop"])
def test_something_still_succeeds(broker: Broker, what: str) -> None:
    broker.forgets = {what}
    load = load_of()
    step(load, broker)
    text = f"a {what} of an account succeeded after its right was taken away, and that answered"
    assert text in load.violations
    (found, *_) = load.violations_of(("127.0.0.1", 1), 1e12, "slave")
    assert found == f"slave: a {what} of an account without the right was answered 0"


def test_held_requests_are_answered_with_what_came_later(broker: Broker) -> None:
    broker.forgets = {"held"}
    load = load_of()
    step(load, broker)
    assert [text.split(" of ")[0] for text in load.violations] == ["a held pull", "a held pop"]


def test_a_right_that_does_not_come_back(broker: Broker) -> None:
    broker.forgets = {"given back"}
    load = load_of()
    step(load, broker)
    assert load.violations == [f"a right was given back, and a send refused: {REFUSED}"]


def test_a_slave_that_refuses_everybody_knows_no_accounts(broker: Broker) -> None:
    load = load_of()
    step(load, broker)
    broker.forgets = {"steady"}
    (found,) = load.violations_of(("127.0.0.1", 1), 1e12, "slave")
    assert found.startswith("slave: an account that has the right was refused")


def test_a_change_that_was_lost_or_not_answered_is_not_judged(broker: Broker) -> None:
    load = load_of()
    step(load, broker)
    broker.has_right = True
    load.forget_since(0.0)
    assert load.violations_of(("127.0.0.1", 1), 1e12, "the new master") == []
    step(load, broker)
    broker.is_lost_at_change = True
    for _ in range(2):
        load.done = 1
        with pytest.raises(ConnectionResetError):
            step(load, broker)
    broker.has_right = True
    assert load.violations_of(("127.0.0.1", 1), 1e12, "the new master") == []
    assert load.violations == []


def test_a_change_that_was_answered_is_still_there_after_a_restart(broker: Broker) -> None:
    load = load_of()
    step(load, broker)
    broker.has_right = True
    step(load, broker)
    assert len(load.violations) == 6  # All but the pops, which find nothing here.


def test_after_the_load_the_right_is_taken_for_good(broker: Broker) -> None:
    load = load_of()
    step(load, broker)
    broker.has_right = True
    load.finish()
    assert not broker.has_right
    broker.forgets = {"change"}
    load.finish()
    assert load.violations == ["a change of rights was refused after the faults"]
    broker.is_lost_at_change = True
    load.finish()
    assert "rights could not be changed after the faults" in load.violations[-1]


def test_the_access_files_are_ones(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    text = (tmp_path / "conf" / "plain_acl.yml").read_text()
    assert text.count("ChaosRights=PUB|SUB") == 2
