"""Describes the sender of a request for logs and audits. Stateless, any thread."""

from __future__ import annotations

from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike


def describe_requester(connection: ConnectionLike, request: RemotingCommand) -> str:
    """The peer's address, with the request's access key if it has one.

    The key is only verified where access control checks signatures.
    """
    access_key = request.ext_fields.get("AccessKey")
    if not access_key:
        return connection.remote_address
    return f"{connection.remote_address} (access key {access_key:.80})"
