"""PreOnlinePeers: what PreOnlineService sees of its group and asks of it: I/O, no decision.

Called by the thread of PreOnlineService, which it blocks for some seconds at most. What peers
answer is judged where it always is: the master that 906 names by Replication, offsets by
ReturningMaster. Which replicas are linked says process `ha`, which let them in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.out.broker_outer_api import refusal_of
from broker.slave.group_members import GroupMembers, MemberAddress
from broker.slave.pre_online import Link, linked_replicas
from ha.control_slots import MASTER_LINKED
from remoting.command_custom_header import decode_header, encode_header
from remoting.headers.ha import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

if TYPE_CHECKING:
    from remoting.remoting_client import RemotingClient

TIMEOUT_MS: Final = 3_000
_GONE: Final = "disconnected"


class PreOnlinePeers:
    """See the module."""

    def __init__(
        self,
        client: RemotingClient,
        members: GroupMembers,
        own_header: Callable[[], ExchangeHAInfoRequestHeader],
        ha_status: Callable[[], dict[str, Any]],
        *,
        broker_name: str,
        is_ours: Callable[[str], bool],
        is_old_compatible: bool,
        counters: memoryview[int],
    ) -> None:
        """own_header: what a master says of itself. ha_status: of process `ha`; raises
        CommandError. is_ours: whether an ip is one of our replicas'. is_old_compatible:
        compatibleWithOldNameSrv. counters: of the control page."""
        self._client = client
        self._members = members
        self._own_header = own_header
        self._ha_status = ha_status
        self._broker_name = broker_name
        self._is_ours = is_ours
        self._is_old_compatible = is_old_compatible
        self._counters = counters

    def members(self) -> list[MemberAddress] | None:
        """The registered brokers of the group; None: no name server has answered."""
        return self._members.fetch_sync_group(is_old_compatible=self._is_old_compatible)

    def linked(self, members: list[MemberAddress]) -> frozenset[MemberAddress]:
        """Those of them that have an HA link of their own. Raises CommandError."""
        links = [
            Link(str(row["id"]), str(row["addr"]).rpartition(":")[0])
            for row in self._ha_status()["haConnectionInfo"]
            if row["state"] != _GONE
        ]
        return linked_replicas(self._broker_name, members, links, self._is_ours)

    @property
    def follows(self) -> bool:
        """Whether this slave is linked to its master."""
        return bool(self._counters[MASTER_LINKED])

    def tell(self, slave: str) -> None:
        """906 to a slave at "ip:port": this is its master. Raises RemotingError,
        BrokerAnswerError."""
        self._exchange(slave, self._own_header())

    def ask(self, master: str) -> ExchangeHAInfoResponseHeader:
        """906 to the master at "ip:port": where is its HA port? Raises RemotingError,
        BrokerAnswerError, RequestError."""
        answer = self._exchange(master, ExchangeHAInfoRequestHeader())
        return decode_header(ExchangeHAInfoResponseHeader, answer.ext_fields)

    def _exchange(self, peer: str, header: ExchangeHAInfoRequestHeader) -> RemotingCommand:
        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        request = RemotingCommand.request(code, encode_header(header))
        answer = self._client.invoke_sync(peer, request, TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal_of(peer, code, answer)
        return answer
