"""TransactionalMessages: the parts work together, with the thread of the checks."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.processor.stored_rights import everybody
from broker.settings.startup_options import StartupOptions
from broker.wiring.transactional_messages import TransactionalMessages
from remoting.headers.transaction import CheckTransactionStateRequestHeader
from remoting.request_processor import ConnectionLike
from tests.broker.broker_fakes import FakeConnection
from tests.broker.transaction_world import (
    COMMIT,
    TIME_OUT_MS,
    Half,
    TransactionWorld,
    end_request,
)


class Calls:
    """ProducerCalls: who was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[ConnectionLike, int]] = []
        self.came = threading.Event()

    def check_producer_transaction_state(
        self,
        connection: ConnectionLike,
        header: CheckTransactionStateRequestHeader,
        half_message: bytes,
    ) -> None:
        assert half_message
        self.asked.append((connection, header.tran_state_table_offset))
        self.came.set()


def transactions(world: TransactionWorld, **settings: str) -> TransactionalMessages:
    hot = world.hot
    return TransactionalMessages(
        SimpleNamespace(  # type: ignore[arg-type]
            options=StartupOptions.from_settings(settings),
            clock=hot.clock,
            on_failure=lambda service, error: pytest.fail(f"{service.name}: {error}"),
        ),
        SimpleNamespace(  # type: ignore[arg-type]
            call_soon_threadsafe=lambda function: function(),
            call_later=lambda _ms, _function: pytest.fail("no op is late here"),
        ),
        SimpleNamespace(  # type: ignore[arg-type]
            log=hot.log, access=world.access, page=hot.page, is_slave=lambda: False
        ),
        SimpleNamespace(topics=hot.topics, offsets=world.offsets, producers=world.producers),  # type: ignore[arg-type]
        hot.writable_log,
        hot.stats,
        everybody,
        SimpleNamespace(hook=hot.timers, put_back_topic=hot.lost_topics.put_back),  # type: ignore[arg-type]
    )


def test_a_master_asks_and_ends(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path)
    producer = world.connect()
    world.prepare()
    world.hot.clock.advance(TIME_OUT_MS + 1)
    calls = Calls()
    made = transactions(world, transactionCheckInterval="1")
    world.hot.clock.monotonic_ms = iter(range(10_000_000)).__next__  # type: ignore[method-assign]
    made.start(calls)
    assert calls.came.wait(10)
    made.shutdown()
    made.shutdown()
    assert calls.asked[0] == (producer, 1)
    world.turn()
    connection = FakeConnection()
    copy = world.hot.records()[1]
    request = end_request(Half(copy.phy_offset, copy.queue_offset), COMMIT)
    assert made.processor.process_request(connection, request) is None
    assert connection.sent[0].code == 0


def test_a_slave_has_nothing_to_stop(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path)
    made = transactions(world, brokerRole="SLAVE", brokerId="1")
    assert set(made.processor.table) == {37, 323}
    made.shutdown()
