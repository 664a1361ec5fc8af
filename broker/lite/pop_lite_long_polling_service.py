"""PopLiteLongPollingService: pops of lite topics that wait, by client.

Loop thread. What waits, its limits and its time are PopLongPollingService's; here a client takes
the place of a topic, since an event is one client's. Limits of a client, of all clients and of all
requests are those of pops. Knows no answer.

Tested by tests/broker/lite/test_pop_lite_message_processor.py.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.lite.lite_subscription import LiteSubscription
from broker.lite.pop_lite_request import PopLiteRequest
from broker.pop.pop_long_polling_service import PollingLimits, PopLongPollingService

_QUEUE = 0


class PopLiteLongPollingService(PopLongPollingService[PopLiteRequest]):
    """See the module."""

    def __init__(
        self,
        run_again: Callable[[PopLiteRequest], None],
        limits: PollingLimits,
        monotonic_ms: Callable[[], int],
    ) -> None:
        """See PopLongPollingService."""
        super().__init__(run_again, limits, monotonic_ms)

    def has_waiting(self, client: LiteSubscription) -> bool:
        """Whether a pop of the client waits."""
        return self.polling_num(client.client_id, client.group.config.name, _QUEUE) > 0

    def wake_group(self, group: str) -> None:
        """Run all pops of the group again: it was deleted."""
        for key, waiting in list(self._waiting.items()):
            if key[1] == group:
                self._ready.extend([key] * len(waiting))
        self._run_ready()

    def wake_client(self, client: LiteSubscription) -> None:
        """Run one of the client's pops again, if one waits."""
        self.notify(client.client_id, client.group.config.name, _QUEUE)
