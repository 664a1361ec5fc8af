"""Headers of users and access control lists of 5.x: 3001 to 3010. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequestHeader(CommandCustomHeader):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER (3001 to 3004)."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUsersRequestHeader(CommandCustomHeader):
    """AUTH_LIST_USER (3005); filter: a part of the name."""

    filter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRequestHeader(CommandCustomHeader):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL (3006, 3007, 3009)."""

    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclRequestHeader(CommandCustomHeader):
    """AUTH_DELETE_ACL (3008); without a resource the whole list of the subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAclsRequestHeader(CommandCustomHeader):
    """AUTH_LIST_ACL (3010); filters: parts of the subject's key and of the resource's."""

    subject_filter: str | None = None
    resource_filter: str | None = None
