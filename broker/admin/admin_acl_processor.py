"""AdminAclProcessor: accounts and whitelisted addresses for operators (50 to 53), files for slaves.

Runs in the `admin` pool: changes write a file. Follows the ACL part of AdminBrokerProcessor of
RocketMQ. Without ACL every code is answered with its own failure code and a remark that says so
(RocketMQ: the text of a NullPointerException, and no response to 52). RequestGuard has already
checked the permission. Every change is logged, without keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from broker.acl.plain_acl_file import PlainAccessConfig
from broker.acl.plain_permission_manager import AccountChange, AclChangeError
from broker.out.broker_outer_api import BrokerIdentity
from broker.processor.table_processor import TableProcessor
from remoting.address_patterns import split_list
from remoting.body.acl_accounts import AclAccount, AclAccounts
from remoting.body.acl_files import AclFiles, AclFileText
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import dumps_java
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

if TYPE_CHECKING:
    from broker.acl.plain_permission_manager import PlainPermissionManager

log = logging.getLogger(__name__)

OFF: Final = "access control is off on this broker; set aclEnable=true and restart it"


class AdminAclProcessor(TableProcessor):
    """Codes 50 to 54 and GET_ACL_FILES."""

    def __init__(self, acl: PlainPermissionManager | None, identity: BrokerIdentity) -> None:
        """`acl` None: aclEnable=false."""
        super().__init__(
            {
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update_account,
                RequestCode.DELETE_ACL_CONFIG: self.delete_account,
                RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_versions,
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white_addresses,
                RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.get_accounts,
                RequestCode.GET_ACL_FILES: self.get_files,
            }
        )
        self._acl = acl
        self._identity = identity

    def update_account(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """50: create or change an account; fields missing in the request are kept."""
        failure = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        acl = self._require(failure)
        header = decode_header(CreateAccessConfigRequestHeader, request.ext_fields)
        change = AccountChange(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_optional_list(header.topic_perms),
            group_perms=_optional_list(header.group_perms),
        )
        _change(failure, lambda: acl.update_account(change))
        log.info("account %s: saved, requested by %s", header.access_key, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def delete_account(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """51: delete an account."""
        failure = ResponseCode.DELETE_ACL_CONFIG_FAILED
        acl = self._require(failure)
        access_key = decode_header(DeleteAccessConfigRequestHeader, request.ext_fields).access_key
        _change(
            failure,
            lambda: acl.delete_account(access_key),
            f"The accesskey[{access_key}] corresponding to accessConfig has been deleted failed.",
        )
        log.info("account %s: deleted, requested by %s", access_key, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def update_white_addresses(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """53: replace the whitelisted addresses of one file."""
        failure = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        acl = self._require(failure)
        header = decode_header(UpdateGlobalWhiteAddrsConfigRequestHeader, request.ext_fields)
        addresses = header.global_white_addrs
        _change(
            failure,
            lambda: acl.update_white_addresses(split_list(addresses), header.acl_file_full_path),
            f"The globalWhiteAddresses[{addresses}] has been updated failed.",
        )
        log.info("white addresses: %s, requested by %s", addresses, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def get_versions(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """52: the data version of each file in use."""
        acl = self._require(ResponseCode.SYSTEM_ERROR)
        data_versions = {
            path: data_version.to_json() for path, data_version in acl.data_versions().items()
        }
        header = GetBrokerAclConfigResponseHeader(
            version=acl.default_data_version().to_json_bytes().decode(),
            all_acl_file_version=dumps_java(data_versions).decode(),
            broker_name=self._identity.broker_name,
            broker_addr=self._identity.broker_addr,
            cluster_name=self._identity.cluster_name,
        )
        return request.response(ResponseCode.SUCCESS, None, encode_header(header))

    def get_accounts(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """54: the accounts of all files, without their secrets (RocketMQ: with them)."""
        acl = self._require(ResponseCode.SYSTEM_ERROR)
        files = acl.contents()
        body = AclAccounts(
            global_white_addrs=[each for file in files for each in file.white_addresses],
            plain_access_configs=[_without_secret(one) for file in files for one in file.accounts],
        )
        return request.response(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def get_files(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """28907 (an extension of this broker): every file with its text, for a slave."""
        acl = self._require(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        files = [AclFileText(name=name, text=text) for name, text in acl.texts().items()]
        log.debug("access files: sent to %s", connection.remote_address)
        return request.response(ResponseCode.SUCCESS, body=AclFiles(files=files).to_json_bytes())

    def _require(self, failure: ResponseCode) -> PlainPermissionManager:
        if self._acl is None:
            raise RequestError(failure, OFF)
        return self._acl


def _without_secret(account: PlainAccessConfig) -> AclAccount:
    return AclAccount(
        access_key=account.access_key,
        white_remote_address=account.white_remote_address,
        admin=account.admin,
        default_topic_perm=account.default_topic_perm,
        default_group_perm=account.default_group_perm,
        topic_perms=list(account.topic_perms),
        group_perms=list(account.group_perms),
    )


def _change(failure: ResponseCode, change: Callable[[], None], lead: str = "") -> None:
    try:
        change()
    except AclChangeError as error:
        raise RequestError(failure, f"{lead} {error}".lstrip()) from error


def _optional_list(text: str | None) -> list[str] | None:
    return None if text is None else split_list(text)
