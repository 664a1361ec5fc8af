"""What happens to a broker from its surroundings: its clock is set, its descriptors run out.

Runs on the thread that leads a run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from remoting.request_code import RequestCode
from tools.chaos.descriptor_fault import exhaust_descriptors
from tools.chaos.frame_client import FrameClient
from tools.chaos.schedule import Fault
from tools.chaos.scratch_group import ScratchBroker
from tools.chaos.workload import TOPIC

JUMPY: Final = {
    "fileReservedTime": 20,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
}
"""Where the clock jumps by a day: files would be expired, and retention works at any hour."""
_CONNECT_S: Final = 1.0
_TIMEOUT_S: Final = 8.0


def jump_clock(broker: ScratchBroker, fault: Fault, pause: Callable[[float], None]) -> None:
    """Set its wall clock, have it look for expired files, and set it right again."""
    broker.set_clock(fault.amount_ms)
    with contextlib.suppress(OSError), FrameClient(broker.address, _TIMEOUT_S) as client:
        client.call(RequestCode.DELETE_EXPIRED_COMMITLOG, {})
    pause(fault.lasts_s)
    broker.set_clock(0)


def exhaust_process(
    broker: ScratchBroker, fault: Fault, topic: str, answers: Callable[[], int]
) -> list[str]:
    """What was violated. topic: one of its. answers: how many others got up to now."""
    pid = broker.processes().get(fault.process)
    if pid is None:
        return []
    port = broker.ports["ha" if fault.process == "ha" else "main"]

    return exhaust_descriptors(
        f"{fault.process} of {broker.name}",
        pid,
        (broker.host, port),
        fault.lasts_s,
        answers,
        lambda: serves(broker, topic),
    )


def serves(broker: ScratchBroker, topic: str = TOPIC) -> bool:
    """Whether a client that connects now is answered soon."""
    with contextlib.suppress(OSError), FrameClient(broker.address, _CONNECT_S) as client:
        return client.max_offset(topic, 0) >= 0
    return False
