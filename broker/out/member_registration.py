"""MemberRegistration: registrations of a broker in a group with a controller.

Nothing is registered before process `ha` says in which role (command "register_member"), as another
broker may lead. From then on the regular registrations have that role, and each of them carries the
master epoch as the state version of its data version: a name server keeps the newer one of two
masters. Who the master is the controller says, so that no answer of a name server is taken for
that; of a follower it goes to `ha`, which looks for the master's HA port in it.

Tested by tests/broker/out/test_member_registration.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from broker.out.broker_outer_api import RegisterBrokerResult
from broker.out.broker_registration import FIRST_DELAY_MS, BrokerRegistration
from remoting.body.topic_config import TopicConfigSerializeWrapper

_TIMEOUT_MS: Final = 5_000
"""At most, when `ha` waits: clients look for the new master meanwhile."""
_MASTER_ID: Final = 0


class RegisteredMember(NamedTuple):
    """What the name servers have answered."""

    taken: bool
    """One has taken the registration, and none has refused it that has not refused before: those,
    and those that cannot be reached, get it as soon as they take it."""
    master_address: str | None
    """A follower's: the master that they know, and its HA port."""
    ha_address: str | None


class MemberRegistration(BrokerRegistration):
    """See the module."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Those of BrokerRegistration."""
        super().__init__(*args, **named)
        self._state_version: int | None = None
        """The epoch of the role; None: there was no role yet."""

    def start(
        self,
        on_registered: Callable[[], None] | None = None,
        *,
        before_first: Callable[[], None] | None = None,
    ) -> None:
        """Call `before_first` and `on_registered`, and register periodically once there is a
        role."""

        def begin() -> None:
            try:
                if before_first is not None:
                    before_first()
            finally:
                if on_registered is not None:
                    on_registered()

        self._executor.submit("member-begins", begin)
        self._executor.schedule(
            "register-broker",
            self._register_regularly,
            first_delay_ms=FIRST_DELAY_MS,
            period_ms=self._period_ms(),
        )

    def register_as(self, broker_id: int, state_version: int) -> RegisteredMember:
        """Register with every name server at once, under this id from now on; 0: the master."""
        with self._lock:
            if self._stopped:
                return RegisteredMember(taken=False, master_address=None, ha_address=None)
            self.identity = replace(self.identity, broker_id=broker_id)
            self._is_slave = broker_id != _MASTER_ID
            self._state_version = state_version
            refused_before = set(self._api.registration_refused_by())
            results = self._register(
                self._topics.wrapper(), wait_for_failing=False, timeout_ms=_TIMEOUT_MS
            )
        names, refused = self._api.name_servers, self._api.registration_refused_by()
        self._note_missing(len(names) - len(results))
        self._repeat_with(refused)
        self._use(results, check_order=True)
        known = next((each for each in results if each.master_addr is not None), None)
        return RegisteredMember(
            taken=not names or (bool(results) and refused_before.issuperset(refused)),
            master_address=None if known is None else known.master_addr,
            ha_address=None if known is None else known.ha_server_addr,
        )

    def register_all(self, *, check_order: bool, force: bool) -> None:
        """Register every topic, if there is a role."""
        if self._state_version is not None:
            super().register_all(check_order=check_order, force=True)

    def unregister(self) -> None:
        """Stop registering, and unregister what was registered."""
        if self._state_version is not None:
            super().unregister()

    def master_is_silent(self) -> None:
        """A controller says who leads: nobody else is asked."""

    def _search_master_if_unknown(self) -> None:
        """Likewise."""

    def _register(
        self,
        wrapper: TopicConfigSerializeWrapper,
        *,
        wait_for_failing: bool = True,
        timeout_ms: int | None = None,
    ) -> list[RegisterBrokerResult]:
        if self._state_version is None:
            return []
        version = replace(wrapper.data_version, state_version=self._state_version)
        return super()._register(
            replace(wrapper, data_version=version),
            wait_for_failing=wait_for_failing,
            timeout_ms=timeout_ms,
        )

    def _use_master(self, results: list[RegisterBrokerResult]) -> None:
        """Whom a name server takes for the master counts for nothing here."""
