"""AdminAuthProcessor: users and ACLs for operators (3001 to 3010).

Runs in the `admin` pool: changes write a file. Follows the part of AdminBrokerProcessor of RocketMQ
5.3.3. RequestGuard has already checked the sender. Every change is logged, without passwords; the
answers to 3004 and 3005 contain them, as in RocketMQ.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.auth.acl_conversion import acl_info, new_acl, policy_type_of
from broker.auth.auth_error import AuthError
from broker.auth.resource import parse_resource
from broker.auth.user import UserType
from broker.auth.user_conversion import given_type, new_user, user_info
from broker.processor.table_processor import TableProcessor
from remoting.body.auth import AclInfo, UserInfo
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import dumps_java
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from remoting.signature import ACCESS_KEY

if TYPE_CHECKING:
    from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager
    from broker.auth.authorization_metadata_manager import AuthorizationMetadataManager

log = logging.getLogger(__name__)

NO_USERS: Final = (
    "The authenticationMetadataProvider is not configured: this broker keeps no users; set it to "
    "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider and "
    "restart the broker"
)
NO_ACLS: Final = (
    "The authorizationMetadataProvider is not configured: this broker keeps no ACLs; set it to "
    "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider and "
    "restart the broker"
)


class AdminAuthProcessor(TableProcessor):
    """Codes 3001 to 3010."""

    def __init__(
        self, users: AuthenticationMetadataManager | None, acls: AuthorizationMetadataManager | None
    ) -> None:
        """None: the table's provider is not configured."""
        super().__init__(
            {
                RequestCode.AUTH_CREATE_USER: self.create_user,
                RequestCode.AUTH_UPDATE_USER: self.update_user,
                RequestCode.AUTH_DELETE_USER: self.delete_user,
                RequestCode.AUTH_GET_USER: self.get_user,
                RequestCode.AUTH_LIST_USER: self.list_users,
                RequestCode.AUTH_CREATE_ACL: self.create_acl,
                RequestCode.AUTH_UPDATE_ACL: self.update_acl,
                RequestCode.AUTH_DELETE_ACL: self.delete_acl,
                RequestCode.AUTH_GET_ACL: self.get_acl,
                RequestCode.AUTH_LIST_ACL: self.list_acls,
            }
        )
        self._users = users
        self._acls = acls

    # -- users ---------------------------------------------------------------------------------

    def create_user(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3001."""
        users = self._require_users()
        user = new_user(_user_of(request))
        if user.is_super and not self._is_super_login(request):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user"
            )
        users.create_user(user)
        log.info("user %s: created, requested by %s", user.username, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def update_user(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3002: password, type or status; what is not given stays."""
        users = self._require_users()
        info = _user_of(request)
        if given_type(info) is UserType.SUPER and not self._is_super_login(request):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user"
            )
        self._check_may_change(users, info.username or "", request)
        users.update_user(info)
        log.info("user %s: updated, requested by %s", info.username, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def delete_user(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3003: with its ACL, which goes first; an unknown user is a success, as in RocketMQ."""
        users = self._require_users()
        username = decode_header(UserRequestHeader, request.ext_fields).username or ""
        if not username.strip():
            raise AuthError("username can not be blank")
        if users.find_user(username) is not None:
            self._check_may_change(users, username, request)
            if self._acls is not None:
                self._acls.forget_user(username)
            users.delete_user(username)
            if self._acls is not None:
                # Another thread may have given it rights meanwhile; the next of this name has none.
                self._acls.forget_user(username)
            log.info("user %s: deleted, requested by %s", username, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def get_user(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3004: without a body if there is no such user."""
        users = self._require_users()
        username = decode_header(UserRequestHeader, request.ext_fields).username or ""
        if not username.strip():
            raise RequestError(ResponseCode.INVALID_PARAMETER, "The username is blank")
        user = users.find_user(username)
        body = b"" if user is None else user_info(user).to_json_bytes()
        return request.response(ResponseCode.SUCCESS, body=body)

    def list_users(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3005: without a body if there is none."""
        part = decode_header(ListUsersRequestHeader, request.ext_fields).filter
        found = self._require_users().list_users(part)
        return _listed(request, [user_info(user) for user in found])

    # -- ACLs ----------------------------------------------------------------------------------

    def create_acl(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3006: entries for resources that the list has already are replaced."""
        return self._save_acl(connection, request)

    def update_acl(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3007: the same."""
        return self._save_acl(connection, request)

    def _save_acl(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        acls = self._require_acls()
        subject = decode_header(AclRequestHeader, request.ext_fields).subject
        info = AclInfo.from_request(request.body) if request.body else AclInfo()
        if not info.policies:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        acl = new_acl(info, subject)
        acls.update_acl(acl)
        log.info("ACL of user %s: saved, requested by %s", acl.username, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def delete_acl(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3008: the entry for one resource, or the whole list."""
        acls = self._require_acls()
        header = decode_header(DeleteAclRequestHeader, request.ext_fields)
        resource = parse_resource(header.resource)
        if resource is None and header.resource is not None and header.resource.strip():
            # RocketMQ takes an unreadable resource as none, and deletes the whole list.
            raise AuthError(f"The resource {header.resource:.100} is unknown")
        acls.delete_acl(header.subject, policy_type_of(header.policy_type), resource)
        log.info("ACL of %s: deleted, requested by %s", header.subject, connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def get_acl(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3009: without a body if the user has none."""
        subject = decode_header(AclRequestHeader, request.ext_fields).subject
        acl = self._require_acls().get_acl(subject)
        body = b"" if acl is None else acl_info(acl).to_json_bytes()
        return request.response(ResponseCode.SUCCESS, body=body)

    def list_acls(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """3010: without a body if there is none."""
        header = decode_header(ListAclsRequestHeader, request.ext_fields)
        found = self._require_acls().list_acls(header.subject_filter, header.resource_filter)
        return _listed(request, [acl_info(acl) for acl in found])

    # -- who asks ------------------------------------------------------------------------------

    def _check_may_change(
        self, users: AuthenticationMetadataManager, username: str, request: RemotingCommand
    ) -> None:
        user = users.find_user(username)
        if user is None:
            raise AuthError("The user is not exist")
        if user.is_super and not self._is_super_login(request):
            raise AuthError("The super user can only be update by super user")

    def _is_super_login(self, request: RemotingCommand) -> bool:
        """Whether a SUPER user asks; a request without an account comes from where it is trusted.
        Raises AuthError for an unknown user."""
        username = request.ext_fields.get(ACCESS_KEY)
        return not username or self._require_users().is_super_user(username)

    def _require_users(self) -> AuthenticationMetadataManager:
        if self._users is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, NO_USERS)
        return self._users

    def _require_acls(self) -> AuthorizationMetadataManager:
        if self._acls is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, NO_ACLS)
        return self._acls


def _user_of(request: RemotingCommand) -> UserInfo:
    """The user of 3001 and 3002; the header's name counts. Raises RequestError."""
    username = decode_header(UserRequestHeader, request.ext_fields).username
    if not username:
        raise RequestError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    if not request.body:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The body of user is null")
    return replace(UserInfo.from_request(request.body), username=username)


def _listed(request: RemotingCommand, infos: Sequence[JsonBean]) -> RemotingCommand:
    body = dumps_java([info.to_json() for info in infos]) if infos else b""
    return request.response(ResponseCode.SUCCESS, body=body)
