"""RateLimit: by address, for all, and in bounded memory."""

from __future__ import annotations

from console.access.rate_limit import BY_ADDRESS, MAX_ADDRESSES, OF_ALL, Rate, RateLimit
from tests.console.access.test_sessions import Clock

AMPLE = Rate(burst=10_000_000, every_ms=1)


def taken(limit: RateLimit, address: str, times: int) -> int:
    return sum(limit.wait_ms(address) == 0 for _ in range(times))


def test_an_address_has_a_burst_and_then_its_rate() -> None:
    clock = Clock()
    limit = RateLimit(clock)
    assert taken(limit, "10.0.0.1", 50) == BY_ADDRESS.burst
    wait_ms = limit.wait_ms("10.0.0.1")
    assert wait_ms == BY_ADDRESS.every_ms
    assert taken(limit, "10.0.0.2", 1) == 1
    clock.ms += wait_ms - 1
    assert taken(limit, "10.0.0.1", 1) == 0
    clock.ms += 1
    assert taken(limit, "10.0.0.1", 5) == 1
    clock.ms += 100 * BY_ADDRESS.every_ms
    assert taken(limit, "10.0.0.1", 50) == BY_ADDRESS.burst


def test_who_is_refused_costs_the_others_nothing() -> None:
    limit = RateLimit(Clock())
    taken(limit, "10.0.0.1", 1_000)
    assert taken(limit, "10.0.0.2", 1) == 1


def test_one_network_of_ipv6_is_one_reader() -> None:
    limit = RateLimit(Clock())
    assert sum(taken(limit, f"2001:db8:0:1::{i:x}", 1) for i in range(50)) == BY_ADDRESS.burst
    assert taken(limit, "2001:db8:0:2::1", 1) == 1
    assert taken(limit, "::ffff:10.0.0.1", 9) == BY_ADDRESS.burst
    assert taken(limit, "10.0.0.1", 9) == 0


def test_attempts_from_very_many_addresses() -> None:
    clock = Clock()
    limit = RateLimit(clock)
    let_through = 0
    for i in range(100_000):
        clock.ms += i % 10 == 0
        let_through += limit.wait_ms(f"x{i}") == 0
    assert let_through <= OF_ALL.burst + 10_000 // OF_ALL.every_ms + 1
    assert len(limit) == let_through


def test_the_table_is_bounded_and_the_oldest_goes() -> None:
    limit = RateLimit(Clock(), of_all=AMPLE)
    taken(limit, "10.0.0.1", 5)
    for i in range(MAX_ADDRESSES - 1):
        taken(limit, f"x{i}", 1)
    assert taken(limit, "10.0.0.1", 1) == 0
    taken(limit, "one more", 1)
    assert len(limit) == MAX_ADDRESSES
    assert taken(limit, "10.0.0.1", 1) == 1  # forgotten: here nothing but the bound holds


def test_who_tries_again_and_again_is_not_the_oldest() -> None:
    limit = RateLimit(Clock(), of_all=AMPLE)
    for address in ("10.0.0.1", *(f"x{i}" for i in range(MAX_ADDRESSES - 1)), "10.0.0.1"):
        taken(limit, address, 1)
    taken(limit, "one more", 1)
    assert taken(limit, "10.0.0.1", 9) == BY_ADDRESS.burst - 2


def test_what_the_table_forgets_was_full_again() -> None:
    """The common rate lets no more through meanwhile than the table holds."""
    refilled_ms = BY_ADDRESS.burst * BY_ADDRESS.every_ms
    assert OF_ALL.burst + refilled_ms // OF_ALL.every_ms < MAX_ADDRESSES


def test_a_long_address_is_cut() -> None:
    limit = RateLimit(Clock())
    assert taken(limit, "y" * 1_000_000, 1) == 1
    assert max(map(len, limit._buckets)) <= 64
