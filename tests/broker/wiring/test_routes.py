"""The broker's one route table, as BrokerController builds it."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from broker.acl.access_table import ACCESS_TABLE
from broker.admin.admin_offset_processor import AdminOffsetProcessor
from broker.broker_controller import BrokerController
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.pull.static_topic_entry import StaticPullEntry
from broker.send.send_message_processor import SendMessageProcessor
from broker.wiring.routes import (
    ADMIN_POOL,
    CONSUMER_POOL,
    END_TRANSACTION_POOL,
    HEARTBEAT_POOL,
    QUERY_POOL,
    REPLY_POOL,
    SEND_BACK_POOL,
    Routes,
)
from broker.wiring.static_topics import STATIC_TOPIC_POOL
from remoting.request_code import RequestCode as Code
from remoting.request_executor import RequestExecutor
from tests.broker.route_world import built_controller


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerController]:
    with built_controller(tmp_path_factory.mktemp("routes")) as controller:
        yield controller


@pytest.mark.parametrize(
    ("code", "pool"),
    [
        (Code.SEND_MESSAGE, None),
        (Code.SEND_MESSAGE_V2, None),
        (Code.SEND_BATCH_MESSAGE, None),
        (Code.PULL_MESSAGE, None),
        (Code.GET_MAX_OFFSET, None),
        (Code.GET_MIN_OFFSET, None),
        (Code.UPDATE_CONSUMER_OFFSET, None),
        (Code.GET_CONSUMER_LIST_BY_GROUP, None),
        (Code.LOCK_BATCH_MQ, None),
        (Code.CONSUMER_SEND_MSG_BACK, SEND_BACK_POOL),
        (Code.SEND_REPLY_MESSAGE, REPLY_POOL),
        (Code.SEND_REPLY_MESSAGE_V2, REPLY_POOL),
        (Code.END_TRANSACTION, END_TRANSACTION_POOL),
        (Code.QUERY_MESSAGE, QUERY_POOL),
        (Code.VIEW_MESSAGE_BY_ID, QUERY_POOL),
        (Code.SEARCH_OFFSET_BY_TIMESTAMP, QUERY_POOL),
        (Code.GET_ALL_TOPIC_CONFIG, ADMIN_POOL),
        (Code.GET_ALL_CONSUMER_OFFSET, ADMIN_POOL),
        (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ADMIN_POOL),
        (Code.GET_TOPIC_STATS_INFO, ADMIN_POOL),
        (Code.GET_CONSUME_STATS, ADMIN_POOL),
        (Code.DELETE_TOPIC_IN_BROKER, ADMIN_POOL),
        (Code.HEART_BEAT, HEARTBEAT_POOL),
        (Code.UNREGISTER_CLIENT, HEARTBEAT_POOL),
        (Code.QUERY_CONSUMER_OFFSET, CONSUMER_POOL),
    ],
)
def test_where_a_code_runs(controller: BrokerController, code: Code, pool: str | None) -> None:
    assert controller._routes.main[code].executor == pool


def test_every_pool_that_is_named_exists(controller: BrokerController) -> None:
    routes = controller._routes
    named = {route.executor for route in routes.main.values()} - {None}
    assert named | {STATIC_TOPIC_POOL} == set(routes.executors)


def test_the_vip_port_serves_everything_but_pulls(controller: BrokerController) -> None:
    routes = controller._routes
    pulls = {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_LITE_MESSAGE}
    assert set(routes.main) - set(routes.vip) == pulls
    own = {code for code in routes.vip if routes.vip[code] is not routes.main[code]}
    assert own == {Code.GET_ALL_TOPIC_CONFIG}, "what slaves ask there"


def test_the_hot_codes_go_to_their_processors(controller: BrokerController) -> None:
    main = controller._routes.main
    sends = {main[code].processor for code in (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2)}
    assert len(sends) == 1
    assert isinstance(sends.pop(), SendMessageProcessor)
    entry = main[Code.PULL_MESSAGE].processor
    assert isinstance(entry, StaticPullEntry)
    assert isinstance(entry._pull, PullMessageProcessor)


def test_a_slave_may_refuse_to_give_its_offsets(controller: BrokerController) -> None:
    objection = controller._outside.replication.find_offsets_objection
    for code in (Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET):
        processor = controller._routes.main[code].processor
        assert isinstance(processor, AdminOffsetProcessor)
        assert processor._find_objection == objection


def test_no_code_of_the_name_server_is_served(controller: BrokerController) -> None:
    namesrv = {Code.REGISTER_BROKER, Code.GET_ROUTEINFO_BY_TOPIC, Code.PUT_KV_CONFIG}
    assert not namesrv & set(controller._routes.main)


def test_the_access_table_has_a_row_for_every_code_that_is_served_and_no_other(
    controller: BrokerController,
) -> None:
    """A new code: say in broker/acl/access_table.py who may ask for it."""
    routes = controller._routes
    assert set(routes.main) | set(routes.vip) == set(ACCESS_TABLE)


@pytest.mark.parametrize("waits", [True, False])
def test_pools_are_looked_at_soon_while_a_request_waits_in_one(*, waits: bool) -> None:
    pools = {
        name: mock.Mock(spec=RequestExecutor, has_waiting=waits and name == "b") for name in "abc"
    }
    assert Routes({}, {}, pools).refuse_late() == waits
    assert all(pool.refuse_late.called for pool in pools.values())
