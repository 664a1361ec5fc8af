"""broker.pop.pop_limits where a queue is longer than a world of a test makes one."""

from __future__ import annotations

import pytest

from broker.pop.pop_limits import MAX_DIFF, PopLimits
from remoting.headers.extra_info_util import ExtraInfo

LIMITS = PopLimits(revive_queue_num=8, max_invisible_ms=60_000, broker_name="b")


@pytest.mark.parametrize(
    ("start", "offset", "fits"),
    [(0, MAX_DIFF, True), (0, MAX_DIFF + 1, False), (5, 4, False), (1 << 40, 1 << 40, True)],
)
def test_a_message_is_no_further_than_an_int_from_where_its_pop_began(
    start: int, offset: int, fits: bool
) -> None:
    handle = ExtraInfo(start, 1_000, 5_000, 7, "0", "b")
    assert LIMITS.fits_handle(handle, offset, 1_000) is fits
    if not fits:
        fault = LIMITS.fault_of_handle(handle, offset, 1_000)
        assert fault == f"start offset {start} for the message at {offset}"
