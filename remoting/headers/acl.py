"""Headers of access control: 50 to 53. Lists are comma lists in one field.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.command_custom_header import CommandCustomHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAccessConfigRequestHeader(CommandCustomHeader):
    """UPDATE_AND_CREATE_ACL_CONFIG (50); perms as "topicA=DENY,topicB=SUB"."""

    access_key: str
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAccessConfigRequestHeader(CommandCustomHeader):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerAclConfigResponseHeader(CommandCustomHeader):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO (52).

    version is a DataVersion as JSON, all_acl_file_version an object of them by file path.
    """

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandCustomHeader):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53); without a path the broker's main file is meant."""

    global_white_addrs: str
    acl_file_full_path: str | None = None
