"""What haStatus says, of what the poller knows: its lines and its JSON, made by the same functions.

Pure; any thread. A broker that does not answer now is shown with what it said last, and with why.
Must not ask anybody, and says nothing itself that tools/commands/ha_status.py says.

Tested by tests/console/test_replication_view.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from console.snapshot import BrokerSeen
from remoting.body.ha_runtime_info import HARuntimeInfo
from tools.commands.ha_status import Answer, Lag, answer_data, answer_lines, slave_lag


def answer_of(broker: BrokerSeen) -> Answer:
    """As the command has it."""
    place, told = broker.place, broker.ha
    info, tree = (None, None) if told.value is None else (told.value.info, told.value.tree)
    error = told.error or ("it has not been asked yet" if info is None else None)
    return Answer(place.address, place.broker_name, place.broker_id, info, tree, error)


def lag_of(broker: BrokerSeen, members: Iterable[BrokerSeen]) -> Lag:
    """How far a slave is behind the master among the members of its group."""
    masters: dict[str, HARuntimeInfo] = {
        member.place.broker_name: member.ha.value.info
        for member in members
        if member.ha.value is not None and member.ha.value.info.master
    }
    return slave_lag(answer_of(broker), masters)


def lines(broker: BrokerSeen, members: Iterable[BrokerSeen], now_ms: int) -> str:
    """What haStatus prints of it."""
    return "\n".join(answer_lines(answer_of(broker), lag_of(broker, members), now_ms))


def data(members: Sequence[BrokerSeen]) -> list[dict[str, Any]]:
    """What haStatus --json prints of the brokers of one group. Of one that does not answer now, but
    has answered, both: the status, and the error."""
    found = []
    for broker in members:
        answer = answer_of(broker)
        one = answer_data(answer, lag_of(broker, members))
        if answer.info is not None and answer.error is not None:
            one["error"] = answer.error
        found.append(one)
    return found
