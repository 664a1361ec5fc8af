"""Acl: the policies of one user, and which of their entries decides on a request. Pure, any thread.

Java: org.apache.rocketmq.auth.authorization.model.{Acl, Policy, PolicyEntry, Environment} and
AclAuthorizationHandler. An Acl is a frozen value: a change makes a new one.

The entry that decides: those of the CUSTOM policy that match resource, one of the actions and the
address; if none does, those of the DEFAULT policy. Of several the most particular one, as in 5.5
(5.3.3's comparator contradicts itself: a shorter prefix may win, and what allows may).
tests/interop/test_auth.py compares it with a 5.5.0 broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from broker.auth.resource import Resource, ResourcePattern, ResourceType
from broker.auth.source_addresses import is_in_source


class Action(StrEnum):
    """What a request does. ALL in an entry means each of them; ANY is what no entry may have."""

    UNKNOWN = "Unknown"
    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(StrEnum):
    """What a matching entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """DEFAULT counts where no entry of CUSTOM matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """One rule. No `source_ips` (None or empty): from everywhere."""

    resource: Resource
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...] | None = None
    decision: Decision

    def matches(self, resource: Resource, actions: Sequence[Action], ip: str) -> bool:
        """Whether it is about a request that needs one of `actions` on `resource`."""
        if not self.resource.matches(resource):
            return False
        if Action.ALL not in self.actions and not any(one in self.actions for one in actions):
            return False
        return not self.source_ips or any(is_in_source(ip, source) for source in self.source_ips)

    def names(self, resource: Resource) -> bool:
        """Whether it is about this one by its name, or takes it away."""
        return self.resource == resource or self.decision is Decision.DENY


@dataclass(frozen=True, slots=True)
class Policy:
    """The entries of one type, at most one for each resource, in the order in which they came."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]

    def with_entries(self, new: Iterable[PolicyEntry]) -> Policy:
        """Each takes the place of the first one for its resource, or is added."""
        entries = list(self.entries)
        for entry in new:
            for place, old in enumerate(entries):
                if old.resource == entry.resource:
                    entries[place] = entry
                    break
            else:
                entries.append(entry)
        return replace(self, entries=tuple(entries))

    def without(self, resource: Resource) -> Policy:
        """Without the first entry for `resource`."""
        entries = list(self.entries)
        for entry in self.entries:
            if entry.resource == resource:
                entries.remove(entry)
                break
        return replace(self, entries=tuple(entries))


@dataclass(frozen=True, slots=True)
class Acl:
    """What one user may do."""

    username: str
    policies: tuple[Policy, ...]

    def find_policy(self, policy_type: PolicyType) -> Policy | None:
        """The first policy of this type."""
        return next((one for one in self.policies if one.type is policy_type), None)

    def with_policies(self, new: Iterable[Policy]) -> Acl:
        """A policy of a new type is added as it is, the entries of a known one are merged."""
        acl = self
        for policy in new:
            old = acl.find_policy(policy.type)
            if old is None:
                acl = replace(acl, policies=(*acl.policies, policy))
            else:
                acl = acl._replaced(old, old.with_entries(policy.entries))
        return acl

    def without(self, policy_type: PolicyType, resource: Resource) -> Acl:
        """Without the entry for `resource`, and without the policy if that was its last."""
        old = self.find_policy(policy_type)
        return self if old is None else self._replaced(old, old.without(resource))

    def _replaced(self, old: Policy, new: Policy) -> Acl:
        policies = [new if one is old else one for one in self.policies]
        return replace(self, policies=tuple(one for one in policies if one.entries))

    def find_entry(
        self, resource: Resource, actions: Sequence[Action], ip: str, *, by_name: bool = False
    ) -> PolicyEntry | None:
        """The entry that decides on a request; None if none matches. by_name: what allows counts
        only if it names exactly this resource."""
        for policy_type in PolicyType:
            policy = self.find_policy(policy_type)
            if policy is None:
                continue
            found = [one for one in policy.entries if one.matches(resource, actions, ip)]
            if by_name:
                found = [one for one in found if one.names(resource)]
            if found:
                return min(found, key=_rank)
        return None


_PATTERNS: Final = (ResourcePattern.LITERAL, ResourcePattern.PREFIXED, ResourcePattern.ANY)
"""The most particular first."""


def _rank(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """The smallest decides: a kind before `*`, a name before a prefix before all of a kind, a
    longer prefix before a shorter one, then what denies. (AclAuthorizationHandler of 5.5.)"""
    resource = entry.resource
    is_prefix = resource.pattern is ResourcePattern.PREFIXED
    return (
        resource.type is ResourceType.ANY,
        _PATTERNS.index(resource.pattern),
        -len(resource.name or "") if is_prefix else 0,
        entry.decision is not Decision.DENY,
    )
