"""AdminAclProcessor: accounts and white addresses for operators (50 to 53), files for slaves.

Runs in the `admin` pool: changes write a file. Follows the ACL part of AdminBrokerProcessor of the
original; without ACL every code is answered with its own failure and a remark that says so (there:
a null pointer's text, and silence to 52). Who may ask is decided before, by RequestGuard. Every
change leaves a line in the log, without keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from broker.acl.plain_permission_manager import AccountChange, AclChangeError
from broker.out.broker_outer_api import BrokerIdentity
from broker.processor.table_processor import TableProcessor
from remoting.address_patterns import split_list
from remoting.body.acl_files import AclFiles, AclFileText
from remoting.body.data_version import DataVersion
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

log = logging.getLogger(__name__)

OFF: Final = "access control is off on this broker, set aclEnable=true and restart it"


class AclFilesManager(Protocol):
    """What is needed of PlainPermissionManager; changes raise AclChangeError."""

    def update_account(self, change: AccountChange) -> None:
        """Create or change."""

    def delete_account(self, access_key: str) -> None:
        """Take it away."""

    def update_white_addresses(self, addresses: Sequence[str], path: str | None) -> None:
        """Of one file."""

    def editions(self) -> dict[str, DataVersion]:
        """By path."""
        ...

    def default_edition(self) -> DataVersion:
        """Of conf/plain_acl.yml."""
        ...

    def texts(self) -> Mapping[str, str]:
        """By name."""
        ...


class AdminAclProcessor(TableProcessor):
    """Codes 50, 51, 52, 53 and GET_ACL_FILES."""

    def __init__(self, acl: AclFilesManager | None, identity: BrokerIdentity) -> None:
        """`acl` None: aclEnable=false."""
        super().__init__(
            {
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update_account,
                RequestCode.DELETE_ACL_CONFIG: self.delete_account,
                RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_versions,
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white_addresses,
                RequestCode.GET_ACL_FILES: self.get_files,
            }
        )
        self._acl = acl
        self._identity = identity

    def update_account(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """50: create an account or change it; what the request leaves out stays."""
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
        log.info("account %s: written, asked by %s", header.access_key, connection.remote_address)
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
        log.info("account %s: deleted, asked by %s", access_key, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def update_white_addresses(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """53: replace the white addresses of one file."""
        failure = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        acl = self._require(failure)
        header = decode_header(UpdateGlobalWhiteAddrsConfigRequestHeader, request.ext_fields)
        addresses = header.global_white_addrs
        _change(
            failure,
            lambda: acl.update_white_addresses(split_list(addresses), header.acl_file_full_path),
            f"The globalWhiteAddresses[{addresses}] has been updated failed.",
        )
        log.info("white addresses: %s, asked by %s", addresses, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def get_versions(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """52: which edition of each file is in force."""
        acl = self._require(ResponseCode.SYSTEM_ERROR)
        editions = {path: edition.to_json() for path, edition in acl.editions().items()}
        header = GetBrokerAclConfigResponseHeader(
            version=acl.default_edition().to_json_bytes().decode(),
            all_acl_file_version=dumps_java(editions).decode(),
            broker_name=self._identity.broker_name,
            broker_addr=self._identity.broker_addr,
            cluster_name=self._identity.cluster_name,
        )
        return request.response(ResponseCode.SUCCESS, None, encode_header(header))

    def get_files(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """28907, ours: every file with its text, for a slave."""
        acl = self._require(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        files = [AclFileText(name=name, text=text) for name, text in acl.texts().items()]
        log.debug("access files: handed to %s", connection.remote_address)
        return request.response(ResponseCode.SUCCESS, body=AclFiles(files=files).to_json_bytes())

    def _require(self, failure: ResponseCode) -> AclFilesManager:
        if self._acl is None:
            raise RequestError(failure, OFF)
        return self._acl


def _change(failure: ResponseCode, change: Callable[[], None], lead: str = "") -> None:
    try:
        change()
    except AclChangeError as error:
        raise RequestError(failure, f"{lead} {error}".lstrip()) from error


def _optional_list(text: str | None) -> list[str] | None:
    return None if text is None else split_list(text)
