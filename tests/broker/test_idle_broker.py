"""How often a broker that nobody uses is woken: counts of the kernel, not times."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)
_WINDOW_S = 1.0
_MOST_A_SECOND = 7
"""It beats twice a second, and the rest falls together with that. Anything that is looked at every
tenth of a second, though nothing happened, would be more."""


def _sleeps(pid: int) -> int:
    """Of the main thread, which is the loop's."""
    found = _SWITCHES.search(Path(f"/proc/{pid}/task/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def test_an_idle_loop_is_woken_twice_a_second(tmp_path: Path) -> None:
    with OurBroker(tmp_path).start() as broker:
        pid = broker.child("remoting")

        def is_quiet() -> bool:
            before, began = _sleeps(pid), time.monotonic()
            time.sleep(_WINDOW_S)
            rate = (_sleeps(pid) - before) / (time.monotonic() - began)
            return 0 < rate < _MOST_A_SECOND

        wait_until(is_quiet, timeout_s=40)
