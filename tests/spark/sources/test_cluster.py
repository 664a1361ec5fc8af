"""The client: who is asked, what refusals say, how long it goes on, and that it tells no secret."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from conf.credentials import Credentials
from remoting.body.message_queue import MessageQueue
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.signature import is_signed_with
from spark.sources.cluster import Cluster
from spark.sources.errors import (
    DamagedMessageError,
    NoNameServerError,
    NoRightError,
    NoTopicError,
    OptionError,
    SourceError,
    UnavailableError,
)
from spark.sources.options import Connection, TlsFiles
from tests.spark.sources.fake_queues import DEAD, FakeQueues, away
from tests.tools.fake_cluster import FakeCluster, running_cluster

QUEUE = MessageQueue(topic="T", broker_name="broker-g", queue_id=0)
SECRET = "open sesame"


@pytest.fixture
def slave() -> Iterator[FakeCluster]:
    """Another server."""
    with running_cluster() as running:
        yield running


class TestNameServers:
    def test_the_next_one(self, server: FakeCluster, stored: FakeQueues) -> None:
        stored.plain("T", 1)
        with Cluster(Connection((DEAD, server.address))) as client:
            assert client.queues("T") == [QUEUE]

    def test_none(self) -> None:
        said = r"no name server.*127\.0\.0\.1:1.*0\.1:2.*asked for 300 ms \(option retryMs\)"
        with (
            Cluster(Connection((DEAD, "127.0.0.1:2"), retry_ms=300)) as client,
            pytest.raises(NoNameServerError, match=said),
        ):
            client.route("T")

    @pytest.mark.parametrize("is_known", [False, True])
    def test_none_for_a_while(
        self,
        client: Cluster,
        stored: FakeQueues,
        is_known: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        stored.plain("T", 1)
        if is_known:
            client.route("T")
        waited = away(client)
        assert client.queues("T", fresh=True) == [QUEUE]
        assert waited == [0.1]
        assert f"{DEAD}" in caplog.text
        assert "asked again for 300 ms" in caplog.text

    def test_one_that_has_just_started_knows_no_topic_yet(
        self, client: Cluster, stored: FakeQueues
    ) -> None:
        """Its brokers tell it within half a minute."""
        waited = away(client)
        to_servers = client.pause

        def pause(seconds: float) -> None:
            to_servers(seconds)
            if len(waited) == 2:
                stored.plain("T", 1)

        client.pause = pause
        assert client.queues("T", fresh=True) == [QUEUE]
        assert len(waited) == 2

    def test_one_that_has_just_started_and_never_hears_of_the_topic(
        self, client: Cluster, stored: FakeQueues
    ) -> None:
        waited = away(client)
        with pytest.raises(NoTopicError, match="topic T does not exist"):
            client.route("T")
        assert waited

    def test_one_that_hangs_is_waited_for_by_timeout_ms(self, stored: FakeQueues) -> None:
        stored.plain("T", 1)
        with socket.create_server(("127.0.0.1", 0)) as hanging:
            address = f"127.0.0.1:{hanging.getsockname()[1]}"
            with Cluster(Connection((address, stored.cluster.address), timeout_ms=200)) as client:
                asked: list[tuple[str, int]] = []
                call = client.admin.call

                def noted(to: str, *given: Any, timeout_ms: int, **named: Any) -> Any:
                    asked.append((to, timeout_ms))
                    return call(to, *given, timeout_ms=timeout_ms, **named)

                client.admin.call = noted  # type: ignore[method-assign]
                client.route("T")
        assert asked == [(address, 200), (stored.cluster.address, 200)]

    def test_a_fresh_route_in_a_failover_is_asked_for_once(
        self, client: Cluster, stored: FakeQueues
    ) -> None:
        """Whoever asks in turns has a deadline of its own."""
        stored.plain("T", 1)
        known = client.route("T")
        waited = away(client)
        client.refresh("T")
        assert (client.route("T"), waited) == (known, [])

    def test_no_topic(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("Topics", 1)
        waited: list[float] = []
        client.pause = waited.append
        with pytest.raises(NoTopicError, match="topic Topic does not exist; the nearest is Topics"):
            client.route("Topic")
        assert waited == []

    def test_no_topic_and_no_right_to_list_them(self, client: Cluster, stored: FakeQueues) -> None:
        stored.cluster.always(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, 16, "no right")
        with pytest.raises(NoTopicError, match="topic T does not exist"):
            client.route("T")

    def test_more_queues_than_a_memory_holds(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 1)
        stored.plain("U", 1)
        for topic, changed in (("T", "read_queue_nums"), ("U", "write_queue_nums")):
            (queues,) = stored.routes[topic].queue_datas
            many: dict[str, Any] = {changed: 2**31 - 1}
            route = replace(stored.routes[topic], queue_datas=[replace(queues, **many)])
            stored.routes[topic] = route
            with pytest.raises(DamagedMessageError, match="its route has 2147483647 queues"):
                client.route(topic)

    def test_a_topic_that_may_not_be_read(self, client: Cluster, stored: FakeQueues) -> None:
        stored.topic("T", perm=2)
        with pytest.raises(NoTopicError, match="no queue that may be read"):
            client.queues("T")

    def test_a_route_that_is_none(self, client: Cluster, stored: FakeQueues) -> None:
        stored.cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=b"[")
        with pytest.raises(DamagedMessageError, match="topic T: an answer cannot be read"):
            client.route("T")


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "remark"),
        [
            (16, "no permission"),
            (1, "org.apache.rocketmq.acl.common.AclException: No default permission for T"),
        ],
    )
    def test_no_right(self, client: Cluster, stored: FakeQueues, code: int, remark: str) -> None:
        stored.plain("T", 1)
        stored.refused["T", 0] = (code, remark)
        with pytest.raises(NoRightError, match="refuses unsigned requests"):
            client.pull(QUEUE, 0)

    def test_no_right_of_an_account(self, server: FakeCluster, stored: FakeQueues) -> None:
        stored.plain("T", 1)
        stored.refused["T", 0] = (16, "no")
        connection = Connection((server.address,), Credentials("me", SECRET))
        with Cluster(connection) as client:
            with pytest.raises(NoRightError, match="refuses the account me") as caught:
                client.pull(QUEUE, 0)
            assert SECRET not in "".join(traceback.format_exception(caught.value))
            assert SECRET not in repr(client.__dict__)
        assert all(is_signed_with(SECRET.encode(), each) for each in server.requests)

    def test_no_group(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 1)
        stored.refused["T", 0] = (26, "subscription group [G] does not exist")
        with pytest.raises(OptionError, match="with the option group"):
            client.pull(QUEUE, 0)

    def test_another(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 1)
        stored.refused["T", 0] = (1, "a disk is full")
        with pytest.raises(SourceError, match=r"queue 0: .*a disk is full"):
            client.pull(QUEUE, 0)

    def test_an_answer_that_lacks_its_fields(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 1)
        stored.cluster.always(RequestCode.PULL_MESSAGE, 0, None, {"nextBeginOffset": "x"})
        with pytest.raises(DamagedMessageError, match="cannot be read"):
            client.pull(QUEUE, 0)


class TestFailover:
    def test_a_slave_answers(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 3)
        addresses = stored.routes["T"].broker_datas[0].broker_addrs
        addresses[1] = addresses[0]
        addresses[0] = DEAD
        assert client.max_offset(QUEUE) == (3, False)

    def test_an_acting_master_is_none(self, client: Cluster, stored: FakeQueues) -> None:
        """It has the master's id in the route, whose queues nobody may write then."""
        stored.topic("T", [[]], perm=4)
        assert client.max_offset(QUEUE) == (0, True)
        object.__setattr__(stored.routes["T"].broker_datas[0], "enable_acting_master", True)
        client.route("T", fresh=True)
        assert client.max_offset(QUEUE) == (0, False)

    def test_a_new_route_while_nobody_answers(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 3)
        addresses = stored.routes["T"].broker_datas[0].broker_addrs
        alive, addresses[0] = addresses[0], DEAD
        waited: list[float] = []

        def pause(seconds: float) -> None:
            waited.append(seconds)
            addresses[0] = alive

        client.pause = pause
        assert client.max_offset(QUEUE) == (3, True)
        assert waited == [0.1]

    def test_no_route_meanwhile(self, client: Cluster, stored: FakeQueues) -> None:
        """A name server forgets a topic whose brokers are away."""
        stored.plain("T", 3)
        route = stored.routes["T"]
        alive = route.broker_datas[0].broker_addrs.pop(0)
        client.route("T")
        seen: list[float] = []

        def pause(seconds: float) -> None:
            seen.append(seconds)
            stored.routes.pop("T", None)
            if len(seen) == 2:
                route.broker_datas[0].broker_addrs[0] = alive
                stored.routes["T"] = route

        client.pause = pause
        assert client.max_offset(QUEUE) == (3, True)

    def test_a_busy_broker(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 3)
        stored.refused["T", 0] = (2, "busy")
        client.pause = lambda _: stored.refused.clear()
        assert client.max_offset(QUEUE) == (3, True)

    def test_nobody_for_too_long(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 3)
        stored.routes["T"].broker_datas[0].broker_addrs[0] = DEAD
        with pytest.raises(UnavailableError, match=r"no answer for 300 ms \(option retryMs\)"):
            client.max_offset(QUEUE)

    def test_a_broker_name_that_is_gone(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 3)
        other = MessageQueue(topic="T", broker_name="gone", queue_id=0)
        with pytest.raises(UnavailableError, match="the route has no broker of this name"):
            client.max_offset(other)


class TestTls:
    def test_files_that_are_not_there(self) -> None:
        with pytest.raises(OptionError, match=r"TLS: tlsTrustCertFile = .*none\.pem"):
            Cluster(Connection((DEAD,), tls=TlsFiles(trust_cert="/none.pem")))


def test_groups(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 3)
    assert client.group_offset("G", QUEUE) is None
    stored.groups["G", "T", 0] = 2
    assert client.group_offset("G", QUEUE) == 2
    client.commit_offset("G", QUEUE, 3)
    assert stored.committed == {("G", "T", 0): 3}


def test_a_pull_does_not_wait_and_commits_nothing(
    client: Cluster, stored: FakeQueues, server: FakeCluster
) -> None:
    stored.plain("T", 3)
    client.pull(QUEUE, 1, 5_000, group="G", expression="A || B")
    asked: RemotingCommand = server.asked(RequestCode.PULL_MESSAGE)[0]
    assert asked.ext_fields["sysFlag"] == "4"
    assert asked.ext_fields["maxMsgNums"] == "1024"
    assert asked.ext_fields["subscription"] == "A || B"
    assert asked.ext_fields["consumerGroup"] == "G"
