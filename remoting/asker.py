"""Who sent a request, in words for logs and audits. Stateless, any thread."""

from __future__ import annotations

from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike


def asker(connection: ConnectionLike, request: RemotingCommand) -> str:
    """The peer's address, with the access key that the request names, if it does.

    Whether that key is the peer's own is known only where access control checks signatures.
    """
    access_key = request.ext_fields.get("AccessKey")
    if not access_key:
        return connection.remote_address
    return f"{connection.remote_address} (access key {access_key:.80})"
