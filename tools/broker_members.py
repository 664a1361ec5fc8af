"""BrokerMembers: reads at one of the brokers that bear a name: the master, else a slave.

Runs in the thread of its owner. A name server keeps a dead master in its routes for a while, and a
slave can show what it has. Only for requests that change nothing.

Tested by tests/tools/test_message_finder.py.
"""

from __future__ import annotations

from collections.abc import Collection

from remoting.body.route import TopicRouteData
from remoting.command_custom_header import CommandCustomHeader
from remoting.errors import RemotingError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import TIMEOUT_MS, AdminClient, member_addresses, unknown
from tools.errors import AdminError


class BrokerMembers:
    """The brokers of a route. Owned by: one thread."""

    def __init__(self, admin: AdminClient, route: TopicRouteData) -> None:
        self._admin = admin
        self._members = {
            data.broker_name: member_addresses(data)
            for data in route.broker_datas
            if data.broker_addrs
        }

    def names(self) -> list[str]:
        """The broker names that have a member."""
        return list(self._members)

    def check(self, broker_name: str) -> None:
        """AdminError for a name that the route does not have."""
        if broker_name not in self._members:
            raise AdminError(unknown("broker name", broker_name, self._members))

    def ask(
        self,
        broker_name: str,
        code: RequestCode,
        header: CommandCustomHeader | None,
        *,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
        extra: dict[str, str] | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand:
        """The answer of the first member that can be reached; who did not answer is asked last from
        then on. Raises AdminError, and RemotingError when none can be reached."""
        self.check(broker_name)
        failed: RemotingError | None = None
        for address in list(self._members[broker_name]):
            try:
                return self._admin.call(
                    address, code, header, accept=accept, extra=extra, timeout_ms=timeout_ms
                )
            except RemotingError as error:
                failed = failed or error
                self._members[broker_name].remove(address)
                self._members[broker_name].append(address)
        assert failed is not None
        raise failed
