"""AuthorizationMetadataManager: the ACLs of this broker, in config/acls.json (mode 0600).

    {"acls": {"User:alice": {"policies": [{"entries": [{"actions": ["Pub"], "decision": "Allow",
              "resource": "Topic:orders"}], "policyType": "Custom"}], "subject": "User:alice"}}}

Java: AuthorizationMetadataManagerImpl and LocalAuthorizationMetadataProvider, which keeps them in
RocksDB. Threads of the admin pool change it, one at a time; the loop and all pools read. A change
is on disk before it is answered.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.auth.acl_conversion import acl_info, new_acl
from broker.auth.auth_error import AuthError
from broker.auth.authentication_metadata_manager import cannot_save, read_members
from broker.auth.policy import Acl, Policy, PolicyType
from broker.auth.resource import Resource
from broker.auth.user import find_username, subject_of
from broker.json_config_manager import SECRET_MODE, JsonConfigManager
from remoting.body.auth import AclInfo

if TYPE_CHECKING:
    from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager


class AuthorizationMetadataManager(JsonConfigManager):
    """`_changes` guards every change; the table is replaced as a whole."""

    FILE_MODE = SECRET_MODE

    def __init__(self, path: Path, users: AuthenticationMetadataManager) -> None:
        super().__init__(path)
        self._users = users
        self._changes = threading.Lock()
        self._acls: Mapping[str, Acl] = {}

    def decode(self, value: dict[str, Any]) -> None:
        """The lists of the file, by user. Raises ValueError."""
        acls = {}
        for subject, tree in read_members(value, "acls").items():
            try:
                acl = new_acl(AclInfo.from_json(tree), None)
            except AuthError as error:
                raise ValueError(f"{subject}: {error.remark}") from error
            if subject_of(acl.username) != subject:
                raise ValueError(f"{subject} has subject {subject_of(acl.username)}")
            acls[acl.username] = acl
        self._acls = acls

    def snapshot(self) -> dict[str, Any]:
        """By the key of the subject."""
        acls = self._acls.items()
        return {"acls": {subject_of(name): acl_info(acl).to_json() for name, acl in acls}}

    # -- queries -------------------------------------------------------------------------------

    @property
    def table(self) -> object:
        """Another object after each change."""
        return self._acls

    def find_acl(self, username: str) -> Acl | None:
        """The list of a user."""
        return self._acls.get(username)

    def get_acl(self, subject: str | None) -> Acl | None:
        """As an operator asks. Raises AuthError without such a user."""
        return self.find_acl(self._known(subject, "The subject is not exist."))

    def list_acls(self, subject_part: str | None, resource_part: str | None) -> list[Acl]:
        """Those whose subject contains `subject_part`, in the order of their keys, with the entries
        whose resource contains `resource_part`."""
        wanted = subject_part if subject_part and subject_part.strip() else ""
        part = resource_part if resource_part and resource_part.strip() else ""
        found = []
        for acl in sorted(self._acls.values(), key=lambda one: one.username.encode()):
            if wanted not in subject_of(acl.username):
                continue
            shown = _with_resources(acl, part)
            if shown.policies:
                found.append(shown)
        return found

    # -- changes -------------------------------------------------------------------------------

    def update_acl(self, acl: Acl) -> None:
        """Create the list of a user, or merge this one into it: 3006 and 3007 are the same. Raises
        AuthError without such a user, RequestError if it cannot be saved."""
        subject = subject_of(acl.username)
        with self._changes:
            self._known(subject, f"The subject of {subject:.100} is not exist.")
            old = self.find_acl(acl.username)
            new = acl if old is None else old.with_policies(acl.policies)
            self._replace({**self._acls, acl.username: new})

    def delete_acl(
        self, subject: str | None, policy_type: PolicyType, resource: Resource | None
    ) -> None:
        """Delete the entry for a resource, or without one the whole list. Raises AuthError,
        RequestError."""
        if find_username(subject) is None:
            raise AuthError("The subject is null.")
        with self._changes:
            username = self._known(subject, "The subject is not exist.")
            old = self.find_acl(username)
            if old is None:
                raise AuthError("The acl is not exist.")
            new = None if resource is None else old.without(policy_type, resource)
            left = {name: acl for name, acl in self._acls.items() if name != username}
            if new is not None and new.policies:
                left[username] = new
            self._replace(left)

    def forget_user(self, username: str) -> None:
        """The user is about to be deleted, or is deleted. Raises RequestError."""
        with self._changes:
            if username in self._acls:
                self._replace({n: acl for n, acl in self._acls.items() if n != username})

    def _known(self, subject: str | None, otherwise: str) -> str:
        username = find_username(subject)
        if username is None or self._users.find_user(username) is None:
            raise AuthError(otherwise)
        return username

    def _replace(self, acls: Mapping[str, Acl]) -> None:
        old, self._acls = self._acls, acls
        try:
            self.persist()
        except OSError as error:
            self._acls = old
            raise cannot_save(self.path, error) from error


def _with_resources(acl: Acl, part: str) -> Acl:
    policies = []
    for policy in acl.policies:
        entries = tuple(one for one in policy.entries if part in one.resource.key)
        if entries:
            policies.append(Policy(policy.type, entries))
    return replace(acl, policies=tuple(policies))
