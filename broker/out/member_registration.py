"""MemberRegistration: the registration of a broker in a group with a controller.

Such a broker is registered while it has a role, under the id of that role: 0 as the master, else
the id that the controllers gave it. Process `ha` says when, with the role's epoch, which every
registration carries as the version of the topics: by it a name server keeps an older master from
taking the place of a newer one. Between two roles nothing is registered; who stays without one is
unregistered after a second, so that a change of masters does not make every slave disappear from
the routes. Any thread calls; `hold` does not block.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from broker.out.broker_outer_api import BrokerIdentity, RegisterBrokerResult
from broker.out.broker_registration import BrokerRegistration
from remoting.body.topic_config import TopicConfigSerializeWrapper

log = logging.getLogger(__name__)

MASTER_ID: Final = 0
_UNREGISTER_AFTER_MS: Final = 1_000


class Registered(NamedTuple):
    """What came of a registration with all name servers."""

    taken: bool
    """Every name server that was reached has taken it; of a follower: and knows its master."""
    ha_address: str | None
    """Where the master sends its log, as the name servers say; None on a master."""


_NOT_TAKEN: Final = Registered(taken=False, ha_address=None)


class MemberRegistration(BrokerRegistration):
    """See the module. `_stopped` of the base says that nothing is to be registered now."""

    def __init__(self, *args: Any, is_role: Callable[[int], bool], **kwargs: Any) -> None:
        """is_role: whether this broker has now the role for which it is registered under an id."""
        super().__init__(*args, **kwargs)
        self._is_role = is_role
        self._state_version = 0
        self._role_lock = threading.Lock()
        """Of `_stopped`, `_roles` and `_left`; held for a moment only."""
        self._roles = 0
        """How many roles have ended."""
        self._left: BrokerIdentity | None = None
        """As what this broker is still registered, though it has lost that role."""
        self._is_registered = False
        self._ended = False
        self._stopped = True

    @property
    def is_held(self) -> bool:
        """Whether `register_member` was not called since the last role ended. Any thread."""
        return self._stopped

    def hold(self) -> None:
        """The role has ended: register nothing before `register_member`. Does not block."""
        with self._role_lock:
            self._roles += 1
            self._stopped = True
            self._master_addr = None
            if not self._is_registered or self._ended:
                return
            self._is_registered = False
            self._leave_later()

    def register_member(
        self, broker_id: int, state_version: int, master_address: str | None
    ) -> Registered:
        """Register with all name servers at once. master_address: of a follower's master, as the
        controllers say."""
        with self._lock:
            with self._role_lock:
                if self._ended or not self._is_role(broker_id):
                    return _NOT_TAKEN
                roles, self._stopped, self._left = self._roles, False, None
                self.identity = replace(self.identity, broker_id=broker_id)
                self._is_slave = broker_id != MASTER_ID
                self._state_version = state_version
            results = self._register(self._topics.wrapper())
            with self._role_lock:
                self._is_registered = bool(results)
                if roles != self._roles:
                    self._is_registered = False
                    self._leave_later()
                    return _NOT_TAKEN
        self._note_missing(len(self._api.name_servers) - len(results))
        refused = self._api.registration_refused_by()
        self._repeat_with(refused)
        self._use(results, check_order=True)
        if broker_id == MASTER_ID:
            return Registered(taken=bool(results) and not refused, ha_address=None)
        ha_address = _ha_address(results, master_address)
        return Registered(ha_address is not None and not refused, ha_address)

    def unregister(self) -> None:
        """An orderly stop, or not registered at all."""
        with self._role_lock:
            self._ended = self._stopped = True
            was, self._is_registered = self._is_registered, False
            left, self._left = self._left, None
        if was or left is not None:
            super().unregister()

    def _leave_later(self) -> None:
        """The role has ended. `_role_lock` is held."""
        self._left = self.identity
        self._executor.schedule(
            "unregister-member", self._leave, first_delay_ms=_UNREGISTER_AFTER_MS, period_ms=None
        )

    def _leave(self) -> None:
        """Unregister, unless this broker has a role again."""
        with self._lock, self._new_topics_lock:
            with self._role_lock:
                left, self._left = self._left, None
            if left is not None:
                log.info("unregistering broker id %s: it has no role", left.broker_id)
                self._api.unregister_broker_all(left)

    def _register(
        self, wrapper: TopicConfigSerializeWrapper, *, wait_for_failing: bool = True
    ) -> list[RegisterBrokerResult]:
        version = replace(wrapper.data_version, state_version=self._state_version)
        shown = replace(wrapper, data_version=version)
        return super()._register(shown, wait_for_failing=wait_for_failing)


def _ha_address(results: list[RegisterBrokerResult], master_address: str | None) -> str | None:
    """What a name server says that knows the same master as the controllers do: another one may
    still name the one before."""
    for result in results:
        if result.master_addr == master_address and result.ha_server_addr is not None:
            return result.ha_server_addr
    return None
