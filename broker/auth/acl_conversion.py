"""ACLs between their form on the wire and in memory, and the checks of a new one. Pure, any thread.

Java: AclConverter, and validate of AuthorizationMetadataManagerImpl, whose words the refusals have.
Refused beyond it: an action or policy type that is no word of RocketMQ's, which there is left out,
or taken as Custom; and an empty list of sources, which there means everywhere.
"""

from __future__ import annotations

from broker.auth.auth_error import AuthError
from broker.auth.policy import Acl, Action, Decision, Policy, PolicyEntry, PolicyType
from broker.auth.resource import parse_resource
from broker.auth.source_addresses import is_valid_source
from broker.auth.user import find_username, find_word, subject_of
from remoting.body.auth import AclInfo, PolicyEntryInfo, PolicyInfo


def acl_info(acl: Acl) -> AclInfo:
    """As it is sent and stored."""
    return AclInfo(
        subject=subject_of(acl.username),
        policies=[_policy_info(policy) for policy in acl.policies] or None,
    )


def new_acl(info: AclInfo, subject: str | None) -> Acl:
    """An Acl that is to be created or merged; `subject`: of the header, if the body names none.
    Raises AuthError."""
    username = find_username(info.subject) or find_username(subject)
    if not username:
        raise AuthError("The subject is null.")
    policies = tuple(_policy(policy) for policy in info.policies or () if policy.entries)
    if not policies:
        raise AuthError("The policies is empty.")
    return Acl(username, policies)


def policy_type_of(text: str | None) -> PolicyType:
    """CUSTOM unless it says otherwise. Raises AuthError for another word."""
    if text is None or not text.strip():
        return PolicyType.CUSTOM
    found = find_word(PolicyType, text)
    if found is None:
        raise AuthError(f"The policy type {text:.100} is unknown, expected Custom or Default")
    return found


def _policy(info: PolicyInfo) -> Policy:
    entries = tuple(_entry(entry) for entry in info.entries or ())
    return Policy(policy_type_of(info.policy_type), entries)


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = parse_resource(info.resource)
    if resource is None:
        raise AuthError("The resource is null.")
    decision = find_word(Decision, info.decision)
    entry_actions = tuple(_action(word) for word in info.actions or ())
    if not entry_actions:
        raise AuthError("The actions is empty.")
    if Action.ANY in entry_actions:
        raise AuthError("The actions can not be Any.")
    if info.source_ips is not None and not info.source_ips:
        # RocketMQ: no list at all, from everywhere. [null] is read as an empty one here.
        raise AuthError("The source ip is empty.")
    for source in info.source_ips or ():
        if not source.strip():
            raise AuthError("The source ip is empty.")
        if not is_valid_source(source):
            raise AuthError("The source ip is invalid.")
    if decision is None:
        raise AuthError("The decision is null or illegal.")
    sources = tuple(info.source_ips) if info.source_ips else None
    return PolicyEntry(
        resource=resource, actions=entry_actions, source_ips=sources, decision=decision
    )


def _action(word: str) -> Action:
    action = find_word(Action, word)
    if action is None:
        raise AuthError(f"The action {word:.100} is unknown")
    return action


def _policy_info(policy: Policy) -> PolicyInfo:
    return PolicyInfo(
        policy_type=policy.type.value,
        entries=[
            PolicyEntryInfo(
                resource=entry.resource.key,
                actions=[action.value for action in entry.actions],
                source_ips=list(entry.source_ips) if entry.source_ips else None,
                decision=entry.decision.value,
            )
            for entry in policy.entries
        ],
    )
