"""User: a name with a password, a type and a status. Pure data, any thread.

Java: org.apache.rocketmq.auth.authentication.model.User, UserType, UserStatus, Subject.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

SUBJECT_PREFIX: Final = "User:"
"""Of the key by which ACLs name a user."""

WordT = TypeVar("WordT", bound=StrEnum)


class UserType(StrEnum):
    """A SUPER user may do everything, a NORMAL one what its ACL allows."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """A disabled user is refused."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user. `password` is the secret key of its signatures."""

    username: str
    password: str = field(repr=False)
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether it may do everything."""
        return self.user_type is UserType.SUPER

    @property
    def is_disabled(self) -> bool:
        """Whether it is refused."""
        return self.user_status is UserStatus.DISABLE


def find_word(words: type[WordT], text: str | None) -> WordT | None:
    """The member with this word, in any case as in RocketMQ (getByName); None if there is none."""
    wanted = (text or "").casefold()
    return next((word for word in words if word.casefold() == wanted), None)


def subject_of(username: str) -> str:
    """The subject key of a user: "User:alice"."""
    return SUBJECT_PREFIX + username


def find_username(subject: str | None) -> str | None:
    """The user that a subject key names; None for another kind of subject, as Subject.of."""
    kind, _, username = (subject or "").partition(":")
    return username if kind.casefold() == SUBJECT_PREFIX[:-1].casefold() else None
