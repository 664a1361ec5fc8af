"""Users and access control lists on the wire: bodies of 3001 to 3010. Pure data, any thread.

Java: UserInfo, AclInfo with PolicyInfo and PolicyEntryInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo(JsonBean):
    """One user. user_type: Super or Normal; user_status: enable or disable."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntryInfo(JsonBean):
    """One rule. resource: "Topic:orders*"; actions: Pub, Sub…; decision: Allow or Deny."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo(JsonBean):
    """The rules of one type: Custom or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AclInfo(JsonBean):
    """What one subject ("User:alice") may do."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
