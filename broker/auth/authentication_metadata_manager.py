"""AuthenticationMetadataManager: the users of this broker, in config/users.json (mode 0600).

    {"users": {"alice": {"password": "…", "userStatus": "enable", "userType": "Normal",
                         "username": "alice"}}}

Java: AuthenticationMetadataManagerImpl and LocalAuthenticationMetadataProvider, which keeps them in
RocksDB. Threads of the admin pool change it, one at a time; the loop and all pools read. A change
is on disk before it is answered. Slaves keep users of their own, as in RocketMQ.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.auth.auth_error import AuthError
from broker.auth.user import User
from broker.auth.user_conversion import given_status, given_type, new_user, user_info
from broker.json_config_manager import SECRET_MODE, JsonConfigManager
from remoting.body.auth import UserInfo
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

SAVE_FAILED: Final = "An system error occurred, please try again later."
"""RocketMQ's words for it, to which the reason is added."""


class AuthenticationMetadataManager(JsonConfigManager):
    """`_changes` guards every change; the table is replaced as a whole."""

    FILE_MODE = SECRET_MODE

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._changes = threading.Lock()
        self._users: Mapping[str, User] = {}

    def decode(self, value: dict[str, Any]) -> None:
        """The users of the file. Raises ValueError."""
        users = {}
        for name, tree in read_members(value, "users").items():
            try:
                users[name] = new_user(UserInfo.from_json(tree))
            except AuthError as error:
                raise ValueError(f"user {name}: {error.remark}") from error
            if users[name].username != name:
                raise ValueError(f"user {name} has username {users[name].username}")
        self._users = users

    def snapshot(self) -> dict[str, Any]:
        """Contains the passwords."""
        return {"users": {name: user_info(user).to_json() for name, user in self._users.items()}}

    # -- queries -------------------------------------------------------------------------------

    @property
    def table(self) -> object:
        """Another object after each change."""
        return self._users

    def find_user(self, username: str) -> User | None:
        """The user of this name."""
        return self._users.get(username)

    def list_users(self, part: str | None = None) -> list[User]:
        """Those whose name contains `part`, in the order of their names (of RocksDB's keys)."""
        wanted = part if part and part.strip() else ""
        found = [user for user in self._users.values() if wanted in user.username]
        return sorted(found, key=lambda user: user.username.encode())

    def is_super_user(self, username: str) -> bool:
        """Raises AuthError for an unknown user."""
        user = self.find_user(username)
        if user is None:
            raise AuthError(f"User:{username:.100} is not found")
        return user.is_super

    # -- changes -------------------------------------------------------------------------------

    def create_user(self, user: User) -> None:
        """Raises AuthError if there is one of this name, RequestError if it cannot be saved."""
        with self._changes:
            if user.username in self._users:
                raise AuthError("The user is existed")
            self._replace({**self._users, user.username: user})

    def update_user(self, info: UserInfo) -> None:
        """Change what is given. Raises AuthError, RequestError."""
        username = info.username or ""
        with self._changes:
            old = self.find_user(username)
            if old is None:
                raise AuthError("The user is not exist")
            password = info.password if info.password and info.password.strip() else old.password
            new = replace(
                old,
                password=password,
                user_type=given_type(info) or old.user_type,
                user_status=given_status(info) or old.user_status,
            )
            self._replace({**self._users, username: new})

    def delete_user(self, username: str) -> None:
        """Nothing happens without such a user. Raises RequestError."""
        with self._changes:
            if username in self._users:
                left = {name: user for name, user in self._users.items() if name != username}
                self._replace(left)

    def _replace(self, users: Mapping[str, User]) -> None:
        old, self._users = self._users, users
        try:
            self.persist()
        except OSError as error:
            self._users = old
            raise cannot_save(self.path, error) from error


def read_members(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The object that the file is about. Raises ValueError."""
    members = value.get(name)
    if not isinstance(members, dict):
        raise ValueError(f"has no object {name}")
    return members


def cannot_save(path: Path, error: OSError) -> RequestError:
    """The answer to a change that could not be saved; nothing is changed."""
    return RequestError(
        ResponseCode.SYSTEM_ERROR, f"{SAVE_FAILED} {path} cannot be written: {error.strerror}"
    )
