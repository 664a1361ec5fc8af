"""ControllerClient: a member's requests to its controllers, and their answers as events.

Called by the member's thread and never waits: an answer comes as an event, on the thread of the
remoting client's loop; a request that fails is logged and given no event, as the member gives it up
after its time. Everything goes to the leader, but for 1005 and heartbeats, which go to every
controller, so that a new leader knows who is alive. It decides nothing but who the leader is.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Final, Protocol

from broker.failover.controller_messages import (
    answer_of,
    ask_command,
    find_leader_command,
    heartbeat_command,
    is_address,
)
from broker.failover.controller_names import ControllerNames
from broker.failover.messages import (
    Ask,
    Event,
    LeaderNamed,
    RoleNotified,
    SendHeartbeat,
)
from broker.failover.settings import MemberSettings
from ipc.clock import Clock
from remoting.command_custom_header import decode_header
from remoting.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RequestError,
)
from remoting.headers.controller import GetMetaDataResponseHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseCallback

log = logging.getLogger(__name__)

NO_TICKET: Final = 0
"""The member's begin at 1."""
PROBE_MS: Final = 3_000
"""RocketMQ's pause between two looks at whether a controller can be reached; at most a third of the
heartbeat timeout here: one that starts anew soon takes whoever it has not heard for dead."""
MAX_LOOKS: Final = 4
"""Questions for roles between two heartbeats, however many strangers send 1008."""
_UNREADABLE: Final = -1


class Calls(Protocol):
    """The part of RemotingClient used here."""

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        """Call, and give `callback` the response or an error, once."""

    def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        """Send without an answer. Raises RemotingError."""


class ControllerClient:
    """See the module. `_round` and `_probed_ms` are the member's thread's, the rest is written by
    the client's loop; of the sets the member's thread takes out what it cannot send to."""

    def __init__(
        self,
        calls: Calls,
        names: ControllerNames,
        settings: MemberSettings,
        clock: Clock,
        deliver: Callable[[Event], None],
    ) -> None:
        """deliver: takes an event; any thread, does not block."""
        self._calls = calls
        self._names = names
        self._settings = settings
        self._clock = clock
        self._deliver = deliver
        self._round = 0
        self._round_of_leader = 0
        """The last round in which a controller said that it leads."""
        self._leader: str | None = None
        self._failing: set[str] = set()
        """Controllers whose last request failed; it is logged as a warning once."""
        self._reached: set[str] = set()
        """Controllers that have answered, and were not found gone since. One that is only silent
        stays: what it reads when it goes on says that this broker lived."""
        self._probe_ms = min(PROBE_MS, settings.controller_heartbeat_timeout_ms // 3)
        self._probed_ms: dict[str, int] = {}
        self._look_wanted = False
        """Somebody has sent 1008 since the last question for roles."""
        self._looking = False
        self._looks_left = MAX_LOOKS
        self._last_codes: dict[int, int] = {}
        """Of the last answer to each request; _UNREADABLE: that one counted for nothing."""

    @property
    def leader(self) -> str | None:
        """host:port of the leader, as last heard."""
        return self._leader

    def find_leader(self) -> None:
        """1005 to every controller."""
        self._round += 1
        known = self._names.known()
        self._probed_ms.clear()
        for addresses in (self._failing, self._reached):
            addresses.intersection_update(known)
        for address in known:
            self._ask_metadata(address)

    def _ask_metadata(self, address: str) -> None:
        self._probed_ms[address] = self._clock.monotonic_ms()
        self._calls.invoke_async(
            address,
            find_leader_command(),
            self._settings.request_timeout_ms,
            functools.partial(self._metadata, self._round, address),
        )

    def ask(self, ask: Ask) -> None:
        """One request to the leader."""
        leader = self._leader
        address = None if leader is None else self._names.find(leader)
        if address is None:
            return
        if ask.beat is not None and not self._beat(address, ask.beat):
            return  # Its answer would renew a lease that the controller has not heard of.
        self._calls.invoke_async(
            address,
            ask_command(ask, self._settings, self._clock.now_ms()),
            self._settings.request_timeout_ms,
            functools.partial(self._answered, ask, address),
        )

    def look_at_roles(self) -> bool:
        """1004 to the leader, because somebody says that roles have changed (1008): what it answers
        is delivered as RoleNotified. Any thread; one such question at a time (two threads at once
        may ask twice). Whether it is asked now; else it is as soon as one may."""
        self._look_wanted = True
        leader = self._leader
        address = None if leader is None else self._names.find(leader)
        if address is None or self._looking or self._looks_left <= 0:
            return False
        self._looking = True
        self._look_wanted = False
        self._looks_left -= 1
        ask = Ask(NO_TICKET, RequestCode.CONTROLLER_GET_REPLICA_INFO)
        self._calls.invoke_async(
            address,
            ask_command(ask, self._settings, self._clock.now_ms()),
            self._settings.request_timeout_ms,
            functools.partial(self._looked, ask, address),
        )
        return True

    def send_heartbeat(self, beat: SendHeartbeat) -> None:
        """904 to every controller that is reached; 1005 to the others, from time to time: one that
        comes back hears of this broker before it has to judge who is alive."""
        self._looks_left = MAX_LOOKS
        if self._look_wanted:
            self.look_at_roles()
        now_ms = self._clock.monotonic_ms()
        for address in self._names.known():
            if address not in self._reached:
                if now_ms - self._probed_ms.get(address, -self._probe_ms) >= self._probe_ms:
                    self._ask_metadata(address)
                continue
            self._beat(address, beat)

    def _beat(self, address: str, beat: SendHeartbeat) -> bool:
        """Whether it is on its way."""
        command = heartbeat_command(beat, self._settings)
        try:
            self._calls.invoke_oneway(address, command, self._settings.request_timeout_ms)
        except RemotingError as error:
            self._failed(address, error)
            return False
        return True

    # Answers, on the client's loop

    def _metadata(
        self,
        asked_in: int,
        address: str,
        response: RemotingCommand | None,
        error: Exception | None,
    ) -> None:
        if response is None or response.code != ResponseCode.SUCCESS:
            self._failed(address, error or f"code {response and response.code}")
            return
        self._works(address)
        try:
            header = decode_header(GetMetaDataResponseHeader, response.ext_fields)
        except RequestError as bad:
            self._unreadable(address, RequestCode.CONTROLLER_GET_METADATA_INFO, bad)
            return
        self._last_codes[RequestCode.CONTROLLER_GET_METADATA_INFO] = ResponseCode.SUCCESS
        leader = header.controller_leader_address
        if leader is None or not is_address(leader):
            return
        if header.is_leader:
            self._round_of_leader = asked_in
        elif self._round_of_leader == asked_in:
            return
        if leader != self._leader:
            log.info("controllers: %s leads, was %s, says %s", leader, self._leader, address)
            self._leader = leader
        self._deliver(LeaderNamed(leader))
        if self._look_wanted:
            self.look_at_roles()

    def _answered(
        self, ask: Ask, address: str, response: RemotingCommand | None, error: Exception | None
    ) -> None:
        if response is None:
            self._failed(address, error)
            return
        self._works(address)
        try:
            answer = answer_of(ask, response, self._settings)
        except RequestError as bad:
            self._unreadable(address, ask.code, bad)
            return
        self._log_code(ask, address, response)
        self._deliver(answer)

    def _looked(
        self, ask: Ask, address: str, response: RemotingCommand | None, error: Exception | None
    ) -> None:
        self._looking = False
        if response is None or response.code != ResponseCode.SUCCESS:
            # The next leader that is named is asked.
            self._look_wanted = True
            if response is None:
                self._failed(address, error)
            return
        try:
            view = answer_of(ask, response, self._settings).view
        except RequestError as bad:
            self._unreadable(address, ask.code, bad)
            return
        if view is not None:
            self._deliver(RoleNotified(view))
        if self._look_wanted:
            self.look_at_roles()

    def _unreadable(self, address: str, code: RequestCode, bad: RequestError) -> None:
        """A warning, once until one to the same request can be read."""
        before = self._last_codes.get(code)
        self._last_codes[code] = _UNREADABLE
        log.log(
            logging.DEBUG if before == _UNREADABLE else logging.WARNING,
            "controller %s: its answer to %s counts for nothing: %s",
            address,
            code.name,
            bad,
        )

    def _log_code(self, ask: Ask, address: str, response: RemotingCommand) -> None:
        """Once, however often the same request gets the same refusal."""
        before = self._last_codes.get(ask.code, ResponseCode.SUCCESS)
        self._last_codes[ask.code] = response.code
        if response.code not in (ResponseCode.SUCCESS, before):
            log.info(
                "controller %s: %s answered with code %s, %.200a",
                address,
                ask.code.name,
                response.code,
                response.remark,
            )

    def _failed(self, address: str, error: object) -> None:
        if isinstance(error, RemotingConnectError | RemotingSendRequestError):
            self._reached.discard(address)
        level = logging.DEBUG if address in self._failing else logging.WARNING
        self._failing.add(address)
        log.log(level, "controller %s does not answer: %s", address, error)

    def _works(self, address: str) -> None:
        self._reached.add(address)
        if address in self._failing:
            self._failing.discard(address)
            log.info("controller %s answers again", address)
