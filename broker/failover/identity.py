"""The bytes of brokerIdentity and brokerIdentity-temp, as RocketMQ 5.3.3 writes them. Pure.

Any thread. One line without an end:

    brokerIdentity        cluster#broker name#id
    brokerIdentity-temp   cluster#broker name#id#check code, where the check code is address;ms
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker.failover.settings import MemberSettings

_MAX_SIZE: Final = 4_096
MAX_BROKER_ID: Final = 10**18 - 1
"""Nobody counts as far; a longer number is a damaged file, or no controller's."""
_ID: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


class IdentityError(ValueError):
    """A file that is no identity, or that of another broker; the message names what it says."""


class Identity(NamedTuple):
    """Who a broker is in its group."""

    cluster_name: str
    broker_name: str
    broker_id: int
    """From 1."""
    register_check_code: str = ""
    """Only of the temporary file."""


def identity_of(settings: MemberSettings, broker_id: int, check_code: str = "") -> Identity:
    """Of the member with these settings."""
    return Identity(settings.cluster_name, settings.broker_name, broker_id, check_code)


def encode_identity(identity: Identity) -> bytes:
    """The file's bytes. Raises IdentityError for a name that the format cannot hold."""
    fields = [identity.cluster_name, identity.broker_name, str(identity.broker_id)]
    if identity.register_check_code:
        fields.append(identity.register_check_code)
    for field in fields:
        if not field or "#" in field or "\n" in field:
            raise IdentityError(f"{field!r} is not allowed in an identity file")
    return "#".join(fields).encode()


def decode_identity(data: bytes, cluster_name: str, broker_name: str) -> Identity:
    """The identity of this broker in a file's bytes, of either file. Raises IdentityError."""
    if len(data) > _MAX_SIZE:
        raise IdentityError(f"{len(data)} bytes are not an identity")
    try:
        fields = data.decode().rstrip("\n").split("#")
    except UnicodeDecodeError:
        raise IdentityError(f"not an identity: {data[:60]!r}") from None
    if len(fields) not in (3, 4) or not _ID.fullmatch(fields[2]) or fields[3:] == [""]:
        raise IdentityError(f"not an identity: {data[:60]!r}")
    if fields[:2] != [cluster_name, broker_name]:
        raise IdentityError(
            f"the identity of {fields[1]} in {fields[0]}, not of {broker_name} in {cluster_name}"
        )
    return Identity(cluster_name, broker_name, int(fields[2]), *fields[3:])
