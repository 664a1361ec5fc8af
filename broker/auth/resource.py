"""Resource: what an ACL entry is about, and what a request touches. Pure data, any thread.

Java: org.apache.rocketmq.auth.authorization.model.Resource, ResourceType, ResourcePattern.

    *                everything
    Topic:*          every topic (ANY)
    Topic:orders*    every topic whose name begins so (PREFIXED)
    Topic:orders     this one (LITERAL)
    Group:…, Cluster:…, Namespace:… alike
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from broker.auth.user import find_word
from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX

_STAR: Final = "*"


class ResourceType(StrEnum):
    """The kinds; no request is about UNKNOWN or NAMESPACE."""

    UNKNOWN = "Unknown"
    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class ResourcePattern(Enum):
    """How the name is meant."""

    ANY = auto()
    LITERAL = auto()
    PREFIXED = auto()


@dataclass(frozen=True, slots=True)
class Resource:
    """One of them. `name`: None for ANY, and for a request that lacks the field."""

    type: ResourceType
    name: str | None
    pattern: ResourcePattern = ResourcePattern.LITERAL

    @property
    def key(self) -> str:
        """As operators write it, and remarks name it."""
        if self.type is ResourceType.ANY:
            return _STAR
        if self.pattern is ResourcePattern.ANY:
            return f"{self.type}:*"
        name = "null" if self.name is None else self.name
        return f"{self.type}:{name}{'*' if self.pattern is ResourcePattern.PREFIXED else ''}"

    def matches(self, other: Resource) -> bool:
        """Whether this one, of an ACL, includes `other`, of a request."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not other.type:
            return False
        if self.pattern is ResourcePattern.LITERAL:
            return self.name == other.name
        if self.pattern is ResourcePattern.ANY:
            return True
        return other.name is not None and other.name.startswith(self.name or "")


def parse_resource(key: str | None) -> Resource | None:
    """Read a key; None for a blank one and an unknown kind, as Resource.of. A name that ends with
    an asterisk ends at its first one. "Any:x" and "Topic:**" become what their keys say, "*" and
    "Topic:*" (RocketMQ: only once they are sent or copied), or a restart would change them."""
    if key is None or not key.strip():
        return None
    if key == _STAR:
        return Resource(ResourceType.ANY, None, ResourcePattern.ANY)
    kind, _, name = key.partition(":")
    resource_type = find_word(ResourceType, kind)
    if resource_type is None:
        return None
    if resource_type is ResourceType.ANY:
        return Resource(resource_type, None, ResourcePattern.ANY)
    if name.endswith(_STAR):
        prefix = name.partition(_STAR)[0]
        if not prefix:
            return Resource(resource_type, None, ResourcePattern.ANY)
        return Resource(resource_type, prefix, ResourcePattern.PREFIXED)
    return Resource(resource_type, name)


def topic_resource(name: str | None) -> Resource:
    """The topic of a request, by its name as it is."""
    return Resource(ResourceType.TOPIC, name)


def group_resource(name: str | None) -> Resource:
    """The group of a request; a retry topic stands for its group."""
    return Resource(ResourceType.GROUP, (name or "").removeprefix(RETRY_GROUP_TOPIC_PREFIX) or name)


def topic_or_group(name: str) -> Resource:
    """A topic, or the group if it is a retry topic."""
    return group_resource(name) if is_retry_topic(name) else topic_resource(name)


def is_retry_topic(name: str | None) -> bool:
    """Whether it is a group's retry topic."""
    return name is not None and name.startswith(RETRY_GROUP_TOPIC_PREFIX)
