"""ControllerRequestProcessor: the requests of a controller: 904, 1001 to 1006, 1009 to 1013.

Reads requests on their pool's thread and has them decided on the loop's (ControllerService), from
where the answers leave, once what they say is stored. 1005, 1009 and 1010 are about this controller
itself; all others are answered by the leader only (2007). Java: ControllerRequestProcessor.

Tested by tests/controller/test_recorded_answers.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from conf.changeable_settings import ChangeableSettings
from conf.errors import ConfigError
from conf.ip_addresses import parse_ip
from conf.settings_change import ProtectedSettingError
from controller.answer_writer import replicas_info, response_of
from controller.broker_holders import BrokerHolders
from controller.controller_config import ControllerConfig
from controller.controller_service import ControllerService, GroupSeen
from controller.leader import Leader
from controller.live_brokers import Heartbeat
from controller.request_guard import RequestGuard
from controller.request_reader import (
    ASKING_CODES,
    broker_names_of,
    heartbeat_of,
    request_of,
)
from controller.requests import (
    AlterSyncStateSet,
    Answer,
    ApplyBrokerId,
    ElectMaster,
    RegisterBroker,
    Request,
)
from remoting.address_patterns import ip_of
from remoting.command_custom_header import encode_header
from remoting.errors import RequestError
from remoting.headers.controller import GetMetaDataResponseHeader
from remoting.peer_origin import is_own_address, origin_of
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_dispatcher import OVERLOAD, AnswerObserver, refusal_of
from remoting.request_processor import ConnectionLike
from remoting.requester import describe_requester
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
_HEARTBEAT_TAKEN: Final = "Heart beat success"
_Handler = Callable[[ConnectionLike, RemotingCommand], RemotingCommand | None]
_Thunk = Callable[[], None]


class ControllerRequestProcessor:
    """See the module. Its state (who holds which id) is the loop's."""

    def __init__(
        self,
        service: ControllerService,
        guard: RequestGuard,
        settings: ChangeableSettings[ControllerConfig],
        on_loop: Callable[[_Thunk], None],
        own_address: Callable[[ConnectionLike], str],
        find_leader: Callable[[], Leader | None] = lambda: None,
        observer: AnswerObserver | None = None,
    ) -> None:
        """on_loop: runs a function on the loop's thread, soon. own_address: host:port that a peer
        is told to come to. find_leader: another controller that leads, if one is known. observer:
        of what is answered later; what is answered at once its dispatcher observes."""
        self._service = service
        self._guard = guard
        self._settings = settings
        self._on_loop = on_loop
        self._own_address = own_address
        self._find_leader = find_leader
        self._observer = observer
        self._holders = BrokerHolders()
        self._handlers: dict[int, _Handler] = {
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self._metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self._sync_state_data,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self._get_config,
            **dict.fromkeys(ASKING_CODES, self._ask),
        }

    @property
    def codes(self) -> Iterable[int]:
        """The request codes that are served."""
        return self._handlers.keys()

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """The response; None: it comes later. Raises RequestError."""
        return self._handlers[request.code](connection, request)

    # -- on the loop ---------------------------------------------------------------------------

    def _later(
        self,
        connection: ConnectionLike,
        command: RemotingCommand,
        find_answer: Callable[[], RemotingCommand | None],
    ) -> None:
        """Have `find_answer` run on the loop, and send what it gives, or the error it raises."""

        self._on_loop(lambda: self._answer(connection, command, find_answer))

    def _answer(
        self,
        connection: ConnectionLike,
        command: RemotingCommand,
        find_answer: Callable[[], RemotingCommand | None],
    ) -> None:
        try:
            answer = find_answer()
        except Exception as error:  # noqa: BLE001 - the request guard
            refusal = refusal_of(connection, command.code, error)
            answer = command.response(refusal.code, refusal.remark)
        if answer is None:
            return
        if self._observer is not None:
            came_ns = command.came_ns or time.monotonic_ns()
            elapsed_ms = (time.monotonic_ns() - came_ns) / _NS_PER_MS
            self._observer.answered(command.code, answer.code, elapsed_ms, oneway=command.is_oneway)
        if not command.is_oneway:
            connection.send_command(answer)

    # -- brokers -------------------------------------------------------------------------------

    def _ask(self, connection: ConnectionLike, whole: RemotingCommand) -> None:
        request, command = request_of(whole), _without_content(whole)

        def decide() -> None:
            if not connection.is_open:
                return
            if self._service.is_busy:
                raise RequestError(ResponseCode.SYSTEM_BUSY, OVERLOAD)
            if self._service.is_leader:
                self._check_sender(connection, command.code, request)

            def give(answer: Answer) -> None:
                self._note_sender(connection, request, answer)
                self._answer(connection, command, lambda: response_of(command, request, answer))

            self._service.ask(request, connection.connection_id, give)

        self._later(connection, command, decide)

    def _check_sender(self, connection: ConnectionLike, code: int, request: Request) -> None:
        """Raises RequestError for a broker that speaks for another one, and for a group too many.
        A group that is not known is for the decision to refuse."""
        seen = self._service.find(request.broker_name)
        match request:
            case ApplyBrokerId():
                self._check_room(request)
            case RegisterBroker() if seen is not None:
                self._check_free(connection, code, seen, request.broker_id)
            case AlterSyncStateSet() if seen is not None:
                self._check_holder(connection, code, seen, request.master_broker_id)
            case ElectMaster() if seen is not None:
                self._check_elector(connection, code, seen, request)

    def _check_room(self, request: ApplyBrokerId) -> None:
        most = self._settings.config.max_broker_groups
        if not self._service.has_room_for(request.broker_name, most):
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"{request.broker_name:.80} would be one group too many: maxBrokerGroups is {most}",
            )

    def _check_elector(
        self, connection: ConnectionLike, code: int, seen: GroupSeen, request: ElectMaster
    ) -> None:
        """A broker asks for itself, and takes no living master's place: only a master may designate
        one, another that shall take over from it, or itself, for a new epoch."""
        if not request.designate_elect:
            self._check_holder(connection, code, seen, request.broker_id)
            return
        master = seen.group.master_broker_id
        if self._guard.is_operator(connection):
            return
        if master is None or not self._speaks_for(connection, seen, master):
            text = self._guard.not_for_operators(connection, code)
            raise self._guard.refusal(connection, code, text)

    def _check_free(
        self, connection: ConnectionLike, code: int, seen: GroupSeen, broker_id: int
    ) -> None:
        if self._is_away(connection, seen, broker_id):
            raise self._guard.refusal(
                connection,
                code,
                f"broker id {broker_id} of {seen.group.broker_name} is recorded at another host, "
                "and this controller does not know yet whether it is alive there; ask again after "
                "leaderWarmUpMillis",
            )
        if self._holders.is_taken(seen, broker_id, origin_of(connection)):
            raise self._guard.refusal(
                connection,
                code,
                f"broker id {broker_id} of {seen.group.broker_name} is alive at another host: two "
                "brokers have one id; stop one of them, and move its brokerIdentity away before it "
                "starts again",
            )

    def _is_away(self, connection: ConnectionLike, seen: GroupSeen, broker_id: int) -> bool:
        """Whether this peer comes too early for an id that is recorded elsewhere. A host name says
        nothing: it is not looked up on this thread."""
        replica = seen.group.replicas.get(broker_id)
        if replica is None or not self._holders.is_unclaimed(seen, broker_id):
            return False
        if parse_ip(ip_of(replica.address)) is None or self._guard.speaks_for_others(connection):
            return False
        return not is_own_address(connection, replica.address)

    def _check_holder(
        self, connection: ConnectionLike, code: int, seen: GroupSeen, broker_id: int
    ) -> None:
        if broker_id in seen.group.replicas and not self._speaks_for(connection, seen, broker_id):
            raise self._guard.refusal(
                connection,
                code,
                f"broker id {broker_id} of {seen.group.broker_name} has not spoken from that host: "
                "it registers (1003) or sends a heartbeat first",
            )

    def _speaks_for(self, connection: ConnectionLike, seen: GroupSeen, broker_id: int) -> bool:
        origin = origin_of(connection)
        is_holder = self._holders.is_holder(seen.group.broker_name, broker_id, origin)
        return is_holder or self._guard.speaks_for_others(connection)

    def _note_sender(self, connection: ConnectionLike, request: Request, answer: Answer) -> None:
        if isinstance(request, RegisterBroker) and answer.code == ResponseCode.SUCCESS:
            self._holders.note(request.broker_name, request.broker_id, origin_of(connection))

    def _heartbeat(self, connection: ConnectionLike, command: RemotingCommand) -> None:
        heartbeat = heartbeat_of(command, connection.connection_id)

        def take() -> RemotingCommand:
            self._take_heartbeat(connection, command.code, heartbeat)
            return command.response(ResponseCode.SUCCESS, _HEARTBEAT_TAKEN)

        self._later(connection, command, take)

    def _take_heartbeat(self, connection: ConnectionLike, code: int, heartbeat: Heartbeat) -> None:
        """One of a broker that nobody has given an id counts for nothing, and is not kept."""
        name, broker_id = heartbeat.broker_name, heartbeat.broker_id
        seen = self._service.find(name)
        if seen is None or broker_id not in seen.group.replicas or not connection.is_open:
            return
        self._check_free(connection, code, seen, broker_id)
        self._holders.note(name, broker_id, origin_of(connection))
        self._holders.forget_but(seen)
        self._service.heard(heartbeat)

    # -- what is shown -------------------------------------------------------------------------

    def _metadata(self, connection: ConnectionLike, command: RemotingCommand) -> None:
        """1005. Brokers believe the first answer that names a leader: whoever is not sure of one
        names none."""
        config = self._settings.config
        me = Leader(config.self_id, self._own_address(connection))

        def show() -> RemotingCommand:
            leads = self._service.is_leader
            leader = me if leads else self._find_leader()
            header = GetMetaDataResponseHeader(
                group=config.controller_d_leger_group,
                controller_leader_id=None if leader is None else leader.id,
                controller_leader_address=None if leader is None else leader.address,
                is_leader=leads,
                peers=config.peers_text or f"{me.id}:{me.address};",
            )
            return command.response(ResponseCode.SUCCESS, ext_fields=encode_header(header))

        self._later(connection, command, show)

    def _sync_state_data(self, connection: ConnectionLike, command: RemotingCommand) -> None:
        names = broker_names_of(command)

        def show() -> RemotingCommand:
            if not self._service.is_leader:
                raise RequestError(ResponseCode.CONTROLLER_NOT_LEADER, "")
            seen = {name: self._service.find(name) for name in dict.fromkeys(names)}
            known = {name: one for name, one in seen.items() if one is not None}
            return command.response(ResponseCode.SUCCESS, body=replicas_info(known).to_json_bytes())

        self._later(connection, command, show)

    # -- settings ------------------------------------------------------------------------------

    def _update_config(
        self, connection: ConnectionLike, command: RemotingCommand
    ) -> RemotingCommand:
        """1009."""
        try:
            text = command.body.decode()
            remark = self._settings.update(text, describe_requester(connection, command))
        except UnicodeDecodeError as error:
            remark = f"UnsupportedEncodingException {error}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
        except ProtectedSettingError as error:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"Can not update config {error.key!r:.80}: {error.reason}."
                f" Changeable: {', '.join(sorted(self._settings.keys))}",
            ) from error
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"nothing changed: {error}") from error
        return command.response(ResponseCode.SUCCESS, remark)

    def _get_config(self, _connection: ConnectionLike, command: RemotingCommand) -> RemotingCommand:
        """1010."""
        return command.response(ResponseCode.SUCCESS, body=self._settings.format_all().encode())


def _without_content(command: RemotingCommand) -> RemotingCommand:
    """What its answer needs of it: thousands may wait for a slow disk, with what they brought."""
    without = RemotingCommand(
        command.code,
        opaque=command.opaque,
        flag=command.flag,
        serialize_type=command.serialize_type,
    )
    without.came_ns = command.came_ns
    return without
