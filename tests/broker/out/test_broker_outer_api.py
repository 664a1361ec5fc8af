"""broker.out.broker_outer_api: what name servers are asked, all at once, and what is made of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.out import broker_outer_api
from broker.out.broker_outer_api import (
    NOTHING_THERE,
    BrokerAnswerError,
    BrokerIdentity,
    BrokerOuterAPI,
    RegisterBrokerResult,
)
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.data_version import DataVersion
from remoting.body.register_broker import decode_register_broker_body
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_table import ResponseCallback
from tests.broker.broker_fakes import CONFIG, FakeClock, golden, json_of

IDENTITY = BrokerIdentity(
    cluster_name="GoldenCluster",
    broker_name="broker-g",
    broker_id=0,
    broker_addr="127.0.0.2:20911",
    ha_server_addr="127.0.0.2:20912",
)
TOPICS = TopicConfigSerializeWrapper(
    data_version=DataVersion(counter=3, timestamp=7),
    topic_config_table={"t": TopicConfig(topic_name="t")},
)

Behaviour = Callable[[RemotingCommand], RemotingCommand | Exception | None]


class FakeClient:
    """Answers in this thread; None means it never answers."""

    def __init__(self) -> None:
        self.behaviours: dict[str, Behaviour] = {}
        self.calls: list[tuple[str, RemotingCommand]] = []
        self.connection_listener: Callable[[str], None] | None = None

    def invoke_sync(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        self.calls.append((address, command))
        outcome = self.behaviours[address](command)
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None
        return outcome

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        self.calls.append((address, command))
        outcome = self.behaviours[address](command)
        if isinstance(outcome, Exception):
            callback(None, outcome)
        elif outcome is not None:
            callback(outcome, None)


def answer(body: bytes = b"", code: int = 0, **fields: str) -> Behaviour:
    return lambda command: command.response(code, "words", fields, body)


def fails(address: str) -> Behaviour:
    return lambda _: RemotingConnectError(address, "refused")


def api_of(**behaviours: Behaviour) -> tuple[BrokerOuterAPI, FakeClient]:
    client = FakeClient()
    client.behaviours = behaviours
    return BrokerOuterAPI(client, list(behaviours)), client


def register(api: BrokerOuterAPI, *, wait_for_failing: bool = True) -> list[RegisterBrokerResult]:
    return api.register_broker_all(
        IDENTITY,
        TOPICS,
        timeout_ms=1_000,
        compressed=False,
        wait_for_failing=wait_for_failing,
    )


def test_the_request_is_javas(tmp_path: Path) -> None:
    java, _ = golden(103)
    topics = TopicConfigManager(tmp_path / "t.json", CONFIG, FakeClock(), SystemTopics())
    api, client = api_of(n=answer())
    api.register_broker_all(IDENTITY, topics.wrapper(), timeout_ms=1_000, compressed=False)
    ours = client.calls[0][1]
    assert ours.code == 103
    fields = dict(java.ext_fields)
    assert ours.ext_fields | {"bodyCrc32": fields["bodyCrc32"]} == fields
    mine, theirs = json_of(ours.body), json_of(java.body)
    assert mine["filterServerList"] == theirs["filterServerList"] == []
    table = "topicConfigSerializeWrapper"
    del mine[table]["topicConfigTable"]["rmq_sys_REVIVE_LOG_GoldenCluster"]  # 5.x's
    assert mine[table]["topicConfigTable"] == theirs[table]["topicConfigTable"]


@pytest.mark.parametrize("compressed", [False, True])
def test_the_body_can_be_read_back(compressed: bool) -> None:
    api, client = api_of(n=answer())
    api.register_broker_all(IDENTITY, TOPICS, timeout_ms=1_000, compressed=compressed)
    ours = client.calls[0][1]
    assert ours.ext_fields["compressed"] == str(compressed).lower()
    body = decode_register_broker_body(ours.body, compressed=compressed, version=409)
    assert body.topic_config_serialize_wrapper == TOPICS


def test_every_name_server_is_asked_and_bad_ones_do_not_matter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api, client = api_of(
        dead=fails("dead"),
        refuses=answer(code=1),
        garbled=answer(b"{{{"),
        good=answer(
            b'{"table":{"t":"broker-g:4"}}', masterAddr="127.0.0.2:20911", haServerAddr="h:1"
        ),
        plain=answer(),
    )
    results = register(api)
    assert [address for address, _ in client.calls] == list(client.behaviours)
    assert len({command.opaque for _, command in client.calls}) == 5
    assert results == [
        RegisterBrokerResult(
            name_server="good",
            master_addr="127.0.0.2:20911",
            ha_server_addr="h:1",
            order_topics={"t": "broker-g:4"},
        ),
        RegisterBrokerResult(
            name_server="plain", master_addr=None, ha_server_addr=None, order_topics=None
        ),
    ]
    for name in ("dead", "refuses", "garbled"):
        assert f"name server {name}: REGISTER_BROKER failed" in caplog.text


def test_recovery_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    api, client = api_of(n=fails("n"))
    register(api)
    client.behaviours["n"] = answer()
    register(api)
    register(api)
    assert caplog.text.count("works again") == 1


def test_a_silent_name_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_outer_api, "_GRACE_MS", 0)
    api, _ = api_of(silent=lambda _: None, good=answer())
    results = api.register_broker_all(IDENTITY, TOPICS, timeout_ms=20, compressed=False)
    assert [result.name_server for result in results] == ["good"]


@pytest.mark.parametrize("timeout_ms", [10_000, 2**63 - 1])
def test_answers_from_another_thread_in_order_of_arrival(timeout_ms: int) -> None:
    """With the longest registerBrokerTimeoutMills the broker never said that it serves."""
    second = threading.Event()
    threads: list[threading.Thread] = []

    class Threaded(FakeClient):
        def invoke_async(
            self,
            address: str,
            command: RemotingCommand,
            timeout_ms: int,
            callback: ResponseCallback,
        ) -> None:
            def run() -> None:
                if address == "slow":
                    second.wait(10)
                    time.sleep(0.05)  # so that it is waited for
                callback(command.response(0, None, {}), None)
                second.set()

            threads.append(threading.Thread(target=run))
            threads[-1].start()

    api = BrokerOuterAPI(Threaded(), ["slow", "quick"])
    results = api.register_broker_all(IDENTITY, TOPICS, timeout_ms=timeout_ms, compressed=False)
    assert [result.name_server for result in results] == ["quick", "slow"]
    for thread in threads:
        thread.join()


def test_those_that_failed_are_told_and_not_waited_for() -> None:
    api, client = api_of(
        down=fails("down"), refusing=answer(code=1), garbled=answer(b"{{{"), good=answer()
    )
    assert len(register(api)) == 1
    client.calls.clear()
    hung: dict[str, Behaviour] = dict.fromkeys(("down", "refusing", "garbled"), lambda _: None)
    client.behaviours |= hung
    results = register(api, wait_for_failing=False)
    assert [result.name_server for result in results] == ["good"]
    assert sorted(address for address, _ in client.calls) == sorted(client.behaviours)
    assert len({command.opaque for _, command in client.calls}) == 4
    client.behaviours |= dict.fromkeys(hung, answer())
    assert len(register(api)) == 4
    assert len(register(api, wait_for_failing=False)) == 4, "they work again"


HELD = b'{"counter":3,"timestamp":7}'


@pytest.mark.parametrize(
    ("behaviour", "different"),
    [
        (answer(HELD, changed="false"), False),
        (answer(HELD, changed="true"), True),
        (answer(b'{"counter":4,"timestamp":7}', changed="false"), True),
        (answer(b"{", changed="false"), False),
        (answer(HELD, code=1), False),
        (fails("n"), False),
    ],
)
def test_only_a_name_server_that_answers_is_different(
    behaviour: Behaviour, different: bool
) -> None:
    api, _client = api_of(same=answer(HELD, changed="false"), n=behaviour)
    assert api.is_different(IDENTITY, TOPICS.data_version, 1_000) is different


@pytest.mark.parametrize(
    ("behaviour", "needed"),
    [
        (answer(HELD, changed="false"), False),
        (answer(b'{"counter":3,"stateVersion":0,"timestamp":7}', changed="false"), False),
        (answer(changed="false"), False),
        (answer(HELD, changed="true"), True),
        (answer(b'{"counter":4,"timestamp":7}', changed="false"), True),
        (answer(b"{", changed="false"), True),
        (answer(HELD), True),
        (answer(HELD, code=1), True),
        (fails("n"), True),
    ],
)
def test_need_register(behaviour: Behaviour, needed: bool) -> None:
    api, client = api_of(same=answer(HELD, changed="false"), n=behaviour)
    assert api.need_register(IDENTITY, TOPICS.data_version, 1_000) is needed
    command = client.calls[0][1]
    assert command.code == 322
    assert command.body == HELD
    assert command.ext_fields == {
        "brokerName": "broker-g",
        "brokerAddr": "127.0.0.2:20911",
        "clusterName": "GoldenCluster",
        "brokerId": "0",
    }


def test_unregister_is_javas() -> None:
    java, _ = golden(104)
    api, client = api_of(a=answer(), b=fails("b"))
    identity = BrokerIdentity(
        cluster_name=java.ext_fields["clusterName"],
        broker_name=java.ext_fields["brokerName"],
        broker_id=int(java.ext_fields["brokerId"]),
        broker_addr=java.ext_fields["brokerAddr"],
        ha_server_addr="",
    )
    assert api.unregister_broker_all(identity) == 1
    assert client.calls[0][1].ext_fields == java.ext_fields


def test_cluster_info_of_every_name_server_that_answers(caplog: pytest.LogCaptureFixture) -> None:
    _, java = golden(106)
    assert java is not None
    api, client = api_of(
        dead=fails("dead"), refuses=answer(code=1), garbled=answer(b"{{"), good=answer(java.body)
    )
    [info] = api.get_broker_cluster_info()
    assert info.broker_addr_table["broker-g"].broker_addrs == {
        0: "127.0.0.2:20911",
        1: "127.0.0.2:21911",
    }
    assert {command.code for _, command in client.calls} == {106}
    for name in ("dead", "refuses", "garbled"):
        assert f"name server {name}: GET_BROKER_CLUSTER_INFO failed" in caplog.text
    client.behaviours["good"] = fails("good")
    assert api.get_broker_cluster_info() == []


@pytest.mark.parametrize("code", [21, 43, 45, 201])
def test_a_table_of_a_java_broker(code: int) -> None:
    request, java = golden(code)
    assert java is not None
    api, client = api_of(b=lambda _: java)
    assert api.get_table("b", RequestCode(code), 1_000) == java.body
    [(_, ours)] = client.calls
    assert (ours.code, ours.ext_fields, ours.body) == (request.code, {}, b"")


def remark(code: int, text: str) -> Behaviour:
    return lambda command: command.response(code, text, {})


@pytest.mark.parametrize("text", sorted(NOTHING_THERE))
def test_a_java_broker_without_such_a_table(text: str) -> None:
    api, client = api_of(b=remark(1, text))
    assert api.get_table("b", RequestCode.GET_ALL_DELAY_OFFSET, 1_000) is None
    client.behaviours["b"] = remark(2, text)
    with pytest.raises(BrokerAnswerError):
        api.get_table("b", RequestCode.GET_ALL_DELAY_OFFSET, 1_000)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (remark(1, "boom"), "b: GET_ALL_DELAY_OFFSET answered with code 1, 0 bytes, remark boom"),
        (answer(b"{}", code=3), "code 3, 2 bytes"),
        (answer(), "code 0, 0 bytes"),
    ],
)
def test_an_answer_without_a_table_is_told(behaviour: Behaviour, words: str) -> None:
    api, client = api_of(b=behaviour)
    with pytest.raises(BrokerAnswerError, match=words):
        api.get_table("b", RequestCode.GET_ALL_DELAY_OFFSET, 1_000)
    client.behaviours["b"] = fails("b")
    with pytest.raises(RemotingConnectError):
        api.get_table("b", RequestCode.GET_ALL_DELAY_OFFSET, 1_000)


def test_other_addresses() -> None:
    api, client = api_of(a=answer(), b=answer())
    api.update_name_server_addresses(["b"])
    api.update_name_server_addresses(["b"])
    register(api)
    assert api.name_servers == ("b",)
    assert [address for address, _ in client.calls] == ["b"]
    api.update_name_server_addresses([])
    assert register(api) == []
    assert not api.need_register(IDENTITY, TOPICS.data_version, 1_000)


@pytest.mark.parametrize(
    ("end", "log_end"),
    [("12", 12), ("-1", 0), ("", 0), ("9" * 19, int("9" * 19)), ("9" * 5_000, 0), ("²", 0)],
)
def test_only_an_offset_is_taken_for_the_end_of_a_masters_log(end: str, log_end: int) -> None:
    answer = RemotingCommand(code=0, body=bytes(56), ext_fields={"maxPhyOffset": end})
    client = SimpleNamespace(invoke_sync=lambda *_: answer)
    found = BrokerOuterAPI(client).get_timer_check_point("10.0.0.1:10911", 1_000)  # type: ignore[arg-type]
    assert found.log_end == log_end
