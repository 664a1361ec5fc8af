"""BrokerFastFailure: a slow disk is told from a `store` that was killed, by its beat."""

from __future__ import annotations

import pytest

from broker.latency.broker_fast_failure import BrokerFastFailure
from broker.settings.broker_config import BrokerConfig
from ipc.control_page import BEAT, STARTS, ProcessIndex
from store.control_slots import ALLOCATED_END, STORE_STATE, StoreState
from store.message_store_config import MessageStoreConfig
from store.reput_message_service import DEFAULT_IDLE_MS
from tests.broker.broker_fakes import FakeClock
from tests.support.shared_memory import fresh_page

BROKER = BrokerConfig(broker_fast_failure_enable=True, wait_time_mills_in_send_queue=200)
STORE_CONFIG = MessageStoreConfig(os_page_cache_busy_time_out_mills=1000)
STORE = ProcessIndex.STORE


class Store:
    """Process `store` as the page shows it, and who looks at it."""

    def __init__(self, broker: BrokerConfig = BROKER) -> None:
        self.page = fresh_page()
        self.counters = self.page.counters
        self.clock = FakeClock()
        self.judge = BrokerFastFailure(broker, STORE_CONFIG, self.page, self.clock)
        self.start()

    def start(self) -> None:
        """It is started (again) and ready at once, but has not beaten yet."""
        self.counters[STARTS + STORE] += 1
        self.counters[STORE_STATE] = StoreState.READY

    def works(self, time_ms: int, step_ms: int = 50) -> None:
        """It beats for so long."""
        for _ in range(time_ms // step_ms):
            self.clock.advance(step_ms)
            self.counters[BEAT + STORE] += 1
            self.judge.look()

    def is_silent(self, time_ms: int, step_ms: int = 50) -> None:
        """It stands still, or is not there."""
        for _ in range(time_ms // step_ms):
            self.clock.advance(step_ms)
            self.judge.look()

    def refuses_what_comes_now(self, time_ms: int) -> bool:
        """Whether a send that comes now is refused after so long, the store working."""
        came_ms = self.clock.monotonic_ms()
        self.works(time_ms)
        return self.judge.is_late(came_ms)


@pytest.fixture
def store() -> Store:
    """It has worked for longer than it needs to settle."""
    made = Store()
    made.works(6_000)
    return made


def test_waiting_for_a_working_store_counts(store: Store) -> None:
    assert not store.refuses_what_comes_now(150)
    assert store.refuses_what_comes_now(200)


def test_a_store_with_nothing_to_do_works(store: Store) -> None:
    """It beats as seldom as its dispatch sleeps."""
    came_ms = store.clock.monotonic_ms()
    store.works(500, step_ms=round(DEFAULT_IDLE_MS))
    assert store.judge.is_late(came_ms)


def test_no_limit_refuses_whatever_waits(store: Store) -> None:
    broker = BrokerConfig(wait_time_mills_in_send_queue=0)
    store.judge = BrokerFastFailure(broker, STORE_CONFIG, store.page, store.clock)
    store.works(6_000)
    assert store.refuses_what_comes_now(0)


def test_nothing_counts_while_the_store_is_silent(store: Store) -> None:
    came_ms = store.clock.monotonic_ms()
    store.is_silent(60_000)
    assert not store.judge.is_late(came_ms)


def test_what_was_waited_before_a_silence_is_forgotten(store: Store) -> None:
    came_ms = store.clock.monotonic_ms()
    store.works(150)
    store.is_silent(400)
    store.works(200)
    assert not store.judge.is_late(came_ms)
    store.works(50)
    assert store.judge.is_late(came_ms)


def test_a_beat_that_comes_late_is_no_silence(store: Store) -> None:
    came_ms = store.clock.monotonic_ms()
    store.is_silent(100)
    store.works(100)
    assert store.judge.is_late(came_ms)


def test_a_killed_store_has_five_seconds_from_its_first_beat(store: Store) -> None:
    came_ms = store.clock.monotonic_ms()
    store.is_silent(700)
    store.start()
    store.is_silent(3_000)
    store.works(5_200)
    assert not store.judge.is_late(came_ms)
    store.works(50)
    assert store.judge.is_late(came_ms)


def test_a_quick_start_is_noticed_without_a_silence(store: Store) -> None:
    store.start()
    assert not store.refuses_what_comes_now(5_000)


def test_a_store_that_recovers_beats_and_is_not_back(store: Store) -> None:
    store.counters[STORE_STATE] = StoreState.RECOVERING
    assert not store.refuses_what_comes_now(60_000)
    store.counters[STORE_STATE] = StoreState.READY
    assert not store.refuses_what_comes_now(5_200)
    assert store.refuses_what_comes_now(200)


def test_a_silence_while_it_settles_shortens_nothing() -> None:
    store = Store()
    store.works(50)
    store.is_silent(1_000)
    came_ms = store.clock.monotonic_ms()
    store.works(4_000)
    assert not store.judge.is_late(came_ms)
    store.works(200)
    assert store.judge.is_late(came_ms)


def test_switched_off() -> None:
    store = Store(BrokerConfig(broker_fast_failure_enable=False, wait_time_mills_in_send_queue=0))
    store.works(6_000)
    store.judge.note_blocked()
    assert not store.refuses_what_comes_now(2_000)
    assert not store.judge.is_busy()
    assert store.judge.blocked_ms() == 2_000


def test_a_log_that_stands_still_is_busy(store: Store) -> None:
    assert (store.judge.blocked_ms(), store.judge.is_busy()) == (0, False)
    store.judge.note_blocked()
    store.works(1_000)
    store.judge.note_blocked()
    assert (store.judge.blocked_ms(), store.judge.is_busy()) == (1_000, False)
    store.works(50)
    assert (store.judge.blocked_ms(), store.judge.is_busy()) == (1_050, True)


def test_the_next_file_ends_it(store: Store) -> None:
    store.judge.note_blocked()
    store.works(2_000)
    store.counters[ALLOCATED_END] += 4096
    assert (store.judge.blocked_ms(), store.judge.is_busy()) == (0, False)
    store.judge.note_blocked()
    store.works(1_000)
    assert (store.judge.blocked_ms(), store.judge.is_busy()) == (1_000, False)


def test_so_does_a_record_that_found_room(store: Store) -> None:
    store.judge.note_blocked()
    store.works(2_000)
    store.judge.note_room()
    assert (store.judge.blocked_ms(), store.judge.is_busy()) == (0, False)


def test_a_log_without_store_is_not_busy(store: Store) -> None:
    store.judge.note_blocked()
    store.is_silent(4_000)
    assert (store.judge.blocked_ms(), store.judge.is_busy()) == (4_000, False)
