"""AuthGuard: checks a request as a 5.3.3 broker does, first who sent it, then what it may do.

Runs on the thread that serves the request, called by RequestGuard: the loop or a pool thread. Java:
AuthenticationPipeline with DefaultAuthenticationHandler, AuthorizationPipeline with
UserAuthorizationHandler and AclAuthorizationHandler; the remarks have their words, the code is
NO_PERMISSION. A change counts from the next request on (RocketMQ: within a minute, its caches):
what a list has allowed is remembered for that list, and a change makes another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.acl.access_resources import Resources
from broker.acl.access_table import AccessRow
from broker.acl.allowed_requests import AllowedRequests
from broker.auth.auth_error import AuthError
from broker.auth.needed_rights import Needed, needed_rights, to_read_stored
from broker.auth.policy import Acl, Action, Decision
from broker.auth.resource import ResourceType
from broker.auth.user import User, subject_of
from broker.settings.auth_config import AuthConfig
from broker.topic.system_topics import is_internal_topic
from remoting.remoting_command import RemotingCommand
from remoting.signature import ACCESS_KEY, is_signed_with

if TYPE_CHECKING:
    from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager
    from broker.auth.authorization_metadata_manager import AuthorizationMetadataManager

_SHOWN: Final = 100
"""Characters shown of an unverified name."""
_NOT_SIGNED: Final = "check signature failed."
NO_SUBJECT: Final = "Authorization failed. Please verify your access rights and try again."


class AuthGuard:
    """AuthChecks of RequestGuard. Any thread."""

    def __init__(
        self,
        config: AuthConfig,
        cluster: str,
        users: AuthenticationMetadataManager,
        acls: AuthorizationMetadataManager | None,
    ) -> None:
        """`config` was checked (AuthConfig.problems_of). Raises ValueError for authorizationEnabled
        without `acls`, which would let everybody do everything."""
        if config.authorization_enabled and acls is None:
            raise ValueError("authorizationEnabled needs a table of ACLs")
        self._cluster = cluster
        self._users = users
        self._acls = acls if config.authorization_enabled else None
        self._unsigned = config.whitelist(config.authentication_whitelist)
        self._unjudged = config.whitelist(config.authorization_whitelist)
        self._authenticates = config.authentication_enabled
        self._allowed = AllowedRequests()

    def knows_sender(self, request: RemotingCommand) -> bool:
        """Whether `check` looks at the signature of this request."""
        return self._authenticates and request.code not in self._unsigned

    def account_of(self, request: RemotingCommand) -> str:
        """The sender of a request that passed. Empty for a code whose signature is not checked
        (authenticationWhitelist); without authentication everybody's word counts."""
        if self._authenticates and not self.knows_sender(request):
            return ""
        return request.ext_fields.get(ACCESS_KEY, "")

    def signer_of(self, request: RemotingCommand) -> str | None:
        """The user whose password signed the request, also one that is disabled; None: nobody's
        did."""
        username = request.ext_fields.get(ACCESS_KEY, "")
        user = self._users.find_user(username)
        signed = user is not None and is_signed_with(user.password.encode(), request)
        return username if signed else None

    def check(self, ip: str, request: RemotingCommand, row: AccessRow) -> None:
        """Raises AuthError, and RequestError for a body that cannot be read."""
        if self.knows_sender(request):
            self._authenticate(request)
        if self._acls is not None and request.code not in self._unjudged:
            self._authorize_row(ip, request, row)

    def check_resources(self, ip: str, request: RemotingCommand, resources: Resources) -> None:
        """Raises AuthError if the sender lacks a right on a message that was found by its place."""
        if self._acls is not None and request.code not in self._unjudged:
            self._authorize(ip, request, lambda: to_read_stored(resources))

    # -- requests that wait ----------------------------------------------------------------------

    @property
    def version(self) -> tuple[object, ...]:
        """Other objects as soon as anything has changed that `validate_held` looks at."""
        return self._users.table, None if self._acls is None else self._acls.table

    def proof_of(self, _ip: str, request: RemotingCommand) -> object:
        """What a request that passed was signed with; None if its sender was not asked for it."""
        return self._find_signer(request).password if self.knows_sender(request) else None

    def validate_held(
        self, ip: str, request: RemotingCommand, row: AccessRow, proof: object
    ) -> None:
        """As `check`, for one that was signed with `proof` when it came. Raises AuthError."""
        if self.knows_sender(request) and self._find_signer(request).password != proof:
            raise AuthError(_NOT_SIGNED)
        if self._acls is not None and request.code not in self._unjudged:
            self._authorize_row(ip, request, row)

    # -- steps -----------------------------------------------------------------------------------

    def _authenticate(self, request: RemotingCommand) -> None:
        if not is_signed_with(self._find_signer(request).password.encode(), request):
            raise AuthError(_NOT_SIGNED)

    def _find_signer(self, request: RemotingCommand) -> User:
        username = request.ext_fields.get(ACCESS_KEY)
        if not username:
            raise AuthError("username cannot be null.")
        user = self._users.find_user(username)
        if user is None:
            raise AuthError(f"User:{username:.{_SHOWN}} is not found.")
        if user.is_disabled:
            raise AuthError(f"User:{username} is disabled.")
        return user

    def _authorize_row(self, ip: str, request: RemotingCommand, row: AccessRow) -> None:
        """What a request needs by its header and body."""
        fields = request.ext_fields
        username = fields.get(ACCESS_KEY)
        acl = self._find_judge(username) if row.named_by else None
        if acl is None:
            self._authorize(ip, request, lambda: needed_rights(request, row, self._cluster))
            return
        key = (username, ip, request.code, *map(fields.get, row.named_by))
        if not self._allowed.includes(key, acl):
            for needed in needed_rights(request, row, self._cluster):
                _judge(acl, acl.username, needed, ip)
            self._allowed.add(key, acl)

    def _find_judge(self, username: str | None) -> Acl | None:
        """The list that alone says what a user may do: not of a SUPER, a disabled or no user."""
        if username is None or self._acls is None:
            return None
        user = self._users.find_user(username)
        if user is None or user.is_super or user.is_disabled:
            return None
        return self._acls.find_acl(username)

    def _authorize(
        self, ip: str, request: RemotingCommand, needed: Callable[[], Iterable[Needed]]
    ) -> None:
        """`needed` is not asked for a SUPER user, whose requests are mostly an operator's."""
        username = request.ext_fields.get(ACCESS_KEY)
        user = None if username is None else self._users.find_user(username)
        if user is not None and user.is_super and not user.is_disabled:
            return
        for one in needed():
            if username is None:
                raise AuthError(NO_SUBJECT)
            if user is None:
                raise AuthError(f"User:{username:.{_SHOWN}} not found.")
            if user.is_disabled:
                raise AuthError(f"User:{username} is disabled.")
            acl = None if self._acls is None else self._acls.find_acl(username)
            _judge(acl, username, one, ip)


def _judge(acl: Acl | None, username: str, needed: Needed, ip: str) -> None:
    """Raises AuthError unless the user's list allows what is needed."""
    resource, actions = needed
    # The broker's own topics hold everybody's messages: "Topic:*" does not open them.
    by_name = (
        Action.SUB in actions
        and resource.type is ResourceType.TOPIC
        and is_internal_topic(resource.name or "")
    )
    entry = None if acl is None else acl.find_entry(resource, actions, ip, by_name=by_name)
    if entry is None:
        reason = "no matched policies."
    elif entry.decision is Decision.DENY:
        reason = "the decision is deny."
    else:
        return
    raise AuthError(
        f"{subject_of(username)} has no permission to access {resource.key:.300} from {ip},"
        f" {reason}"
    )
