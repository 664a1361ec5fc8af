"""Users between their form on the wire and in memory. Pure, any thread.

Java: UserConverter. A type or status that is no word of RocketMQ's is refused; there it counts as
not given, so that `-t admin` makes a NORMAL user.
"""

from __future__ import annotations

from broker.auth.auth_error import AuthError
from broker.auth.user import User, UserStatus, UserType, WordT, find_word
from remoting.body.auth import UserInfo


def user_info(user: User) -> UserInfo:
    """As it is sent and stored, password included."""
    return UserInfo(
        username=user.username,
        password=user.password,
        user_type=user.user_type.value,
        user_status=user.user_status.value,
    )


def new_user(info: UserInfo) -> User:
    """A user that is to be created: NORMAL and enabled unless it says otherwise. Raises
    AuthError."""
    username, password = info.username or "", info.password or ""
    if not username.strip():
        raise AuthError("username can not be blank")
    if not password.strip():
        raise AuthError("password can not be blank")
    return User(
        username=username,
        password=password,
        user_type=given_type(info) or UserType.NORMAL,
        user_status=given_status(info) or UserStatus.ENABLE,
    )


def given_type(info: UserInfo) -> UserType | None:
    """The type, if one is given. Raises AuthError for another word."""
    return _given(UserType, info.user_type, "user type")


def given_status(info: UserInfo) -> UserStatus | None:
    """The status, if one is given. Raises AuthError for another word."""
    return _given(UserStatus, info.user_status, "user status")


def _given(words: type[WordT], text: str | None, what: str) -> WordT | None:
    if text is None or not text.strip():
        return None
    word = find_word(words, text)
    if word is None:
        known = ", ".join(words)
        raise AuthError(f"The {what} {text:.100} is unknown, expected one of {known}")
    return word
