"""Acl: the policies of one user, and which of their entries decides on a request. Pure, any thread.

Java: org.apache.rocketmq.auth.authorization.model.{Acl, Policy, PolicyEntry, Environment} and
AclAuthorizationHandler. An Acl is a frozen value: a change makes a new one.

The entry that decides: those of the CUSTOM policy that match resource, one of the actions and the
address; if none does, those of the DEFAULT policy. Of several, RocketMQ takes the first after its
sort, and that sort is kept as it is, quirks included (tests/broker/auth/test_policy.py shows the
table, tests/interop/test_auth.py compares it with a 5.3.3 broker):

- an entry for a kind goes before one for `*`, a shorter prefix before a longer one, and an entry
  that allows before an ANY that denies;
- of 32 and more matching entries Java sorts in another way (and may refuse to): not followed;
- LITERAL against PREFIXED, and one of both that denies against an ANY that allows, have no order:
  the comparator calls each the smaller one, so the entry that was added later decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

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
                return found[0] if len(found) == 1 else in_java_order(found)[0]
        return None


def in_java_order(entries: Sequence[PolicyEntry]) -> list[PolicyEntry]:
    """The entries as Java's List.sort leaves them: the comparator contradicts itself, so the result
    depends on the algorithm, which is a binary insertion after the first run for lists this short.
    """
    run = _ascending_run(list(entries))
    for entry in entries[len(run) :]:
        low, high = 0, len(run)
        while low < high:
            middle = (low + high) // 2
            if _compare(entry, run[middle]) < 0:
                high = middle
            else:
                low = middle + 1
        run.insert(low, entry)
    return run


def _ascending_run(entries: list[PolicyEntry]) -> list[PolicyEntry]:
    """The run at the beginning; a descending one, turned round."""
    end = 1
    descending = len(entries) > 1 and _compare(entries[1], entries[0]) < 0
    while end < len(entries) and (_compare(entries[end], entries[end - 1]) < 0) is descending:
        end += 1
    return entries[:end][::-1] if descending else entries[:end]


def _compare(one: PolicyEntry, other: PolicyEntry) -> int:
    """AclAuthorizationHandler.comparePolicyEntries; the smallest decides."""
    first, second = one.resource, other.resource
    order = 0
    if first.type is not second.type:
        if second.type is ResourceType.ANY:
            return -1
        order = 1 if first.type is ResourceType.ANY else 0
    elif first.pattern is not second.pattern:
        order = 0 if first.pattern is ResourcePattern.ANY else -1
    elif first.pattern is ResourcePattern.PREFIXED:
        order = len(first.name or "") - len(second.name or "")
    if order:
        return order
    if one.decision is Decision.DENY:
        return 1
    return -1 if other.decision is Decision.DENY else 0
