"""broker.auth.policy: which entry decides. The table is worked out by hand from the order of 5.5's
AclAuthorizationHandler; tests/interop/test_auth.py asks a 5.5.0 broker the same of random lists."""

from __future__ import annotations

import pytest

from broker.auth.policy import Acl, Action, Decision, Policy, PolicyEntry, PolicyType
from broker.auth.resource import parse_resource, topic_resource
from tests.support.every_row import every_row


def entry(text: str) -> PolicyEntry:
    """ "Topic:a* Pub,Sub Allow 10.0.0.0/8,::1": resource, actions, decision, sources."""
    key, actions, decision, *sources = text.split()
    resource = parse_resource(key)
    assert resource is not None
    return PolicyEntry(
        resource=resource,
        actions=tuple(Action(word) for word in actions.split(",")),
        decision=Decision(decision),
        source_ips=tuple(sources[0].split(",")) if sources else None,
    )


def acl(*custom: str, default: tuple[str, ...] = ()) -> Acl:
    policies = [
        Policy(kind, tuple(entry(text) for text in texts))
        for kind, texts in ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
        if texts
    ]
    return Acl("alice", tuple(policies))


def decision(one: Acl, name: str = "abc", *actions: Action, ip: str = "10.1.1.1") -> str | None:
    found = one.find_entry(topic_resource(name), actions or (Action.GET,), ip)
    return None if found is None else f"{found.resource.key} {found.decision}"


ALLOW, DENY = "Get Allow", "Get Deny"


@every_row(
    ("entries", "decides"),
    [
        # One entry.
        (["Topic:abc " + ALLOW], "Topic:abc Allow"),
        (["Topic:ab " + ALLOW], None),
        (["Topic:ab* " + DENY], "Topic:ab* Deny"),
        (["Topic:abcd* " + ALLOW], None),
        (["Topic:* " + ALLOW], "Topic:* Allow"),
        (["* " + DENY], "* Deny"),
        (["Group:abc " + ALLOW], None),
        (["Group:* " + ALLOW], None),
        (["Cluster:* " + ALLOW, "Namespace:* " + ALLOW, "Unknown:* " + ALLOW], None),
        (["Topic:abc Pub,Sub,List Allow"], None),
        (["Topic:abc All Deny"], "Topic:abc Deny"),
        # A kind goes before everything, in either order and whatever it says.
        (["Topic:* " + DENY, "* " + ALLOW], "Topic:* Deny"),
        (["* " + ALLOW, "Topic:* " + DENY], "Topic:* Deny"),
        (["* " + DENY, "Topic:* " + ALLOW], "Topic:* Allow"),
        # A longer prefix goes before a shorter one.
        (["Topic:a* " + ALLOW, "Topic:ab* " + DENY], "Topic:ab* Deny"),
        (["Topic:ab* " + ALLOW, "Topic:a* " + DENY], "Topic:ab* Allow"),
        (["Topic:abc* " + DENY, "Topic:ab* " + ALLOW, "Topic:a* " + ALLOW], "Topic:abc* Deny"),
        # All of a kind comes last.
        (["Topic:* " + DENY, "Topic:abc " + ALLOW], "Topic:abc Allow"),
        (["Topic:abc " + ALLOW, "Topic:* " + DENY], "Topic:abc Allow"),
        (["Topic:* " + DENY, "Topic:a* " + ALLOW], "Topic:a* Allow"),
        (["Topic:a* " + ALLOW, "Topic:* " + DENY], "Topic:a* Allow"),
        (["Topic:* " + ALLOW, "Topic:abc " + DENY], "Topic:abc Deny"),
        (["Topic:abc " + DENY, "Topic:* " + ALLOW], "Topic:abc Deny"),
        (["Topic:* " + ALLOW, "Topic:a* " + DENY], "Topic:a* Deny"),
        (["Topic:a* " + DENY, "Topic:* " + ALLOW], "Topic:a* Deny"),
        # A name goes before a prefix.
        (["Topic:abc " + ALLOW, "Topic:a* " + DENY], "Topic:abc Allow"),
        (["Topic:a* " + DENY, "Topic:abc " + ALLOW], "Topic:abc Allow"),
        (["Topic:abc " + DENY, "Topic:a* " + ALLOW], "Topic:abc Deny"),
        (["Topic:a* " + ALLOW, "Topic:abc " + DENY], "Topic:abc Deny"),
        # The same resource twice, which only one request can do: what denies.
        (["Topic:abc " + ALLOW, "Topic:abc " + DENY], "Topic:abc Deny"),
        (["Topic:abc " + DENY, "Topic:abc " + ALLOW], "Topic:abc Deny"),
        # Entries that do not match do not count.
        (["Topic:x " + DENY, "Topic:abc Pub Deny", "* " + ALLOW], "* Allow"),
    ],
)
def test_which_entry_decides(entries: list[str], decides: str | None) -> None:
    assert decision(acl(*entries)) == decides


def test_default_counts_where_no_custom_entry_matches() -> None:
    both = acl("Topic:abc " + DENY, default=("Topic:* " + ALLOW, "* " + ALLOW))
    assert decision(both) == "Topic:abc Deny"
    assert decision(both, "other") == "Topic:* Allow"
    assert decision(acl(default=("* " + DENY,))) == "* Deny"
    assert decision(acl()) is None


def test_one_of_several_actions_suffices() -> None:
    one = acl("Topic:abc Sub Allow")
    assert decision(one, "abc", Action.SUB, Action.GET) == "Topic:abc Allow"
    assert decision(one, "abc", Action.PUB, Action.GET) is None
    # Any denied action denies.
    both = acl("Topic:abc Get Allow", "* Sub Deny")
    assert decision(both, "abc", Action.SUB, Action.GET) == "Topic:abc Allow"


@pytest.mark.parametrize(
    ("sources", "ip", "matches"),
    [
        ("10.1.1.1", "10.1.1.1", True),
        ("10.1.1.1", "10.1.1.2", False),
        ("10.1.0.0/16", "10.1.255.255", True),
        ("10.1.0.7/16", "10.1.1.1", True),
        ("10.1.0.0/16", "10.2.0.0", False),
        ("0.0.0.0/0", "10.2.0.0", True),
        ("::/0", "10.2.0.0", False),
        ("192.168.0.1,10.1.1.0/30", "10.1.1.3", True),
        ("2001:db8::/32", "2001:db8::1", True),
        ("10.1.1.1", "::ffff:10.1.1.1", True),
        ("10.1.1.1", "no address", False),
    ],
)
def test_where_from(sources: str, ip: str, matches: bool) -> None:
    one = acl(f"Topic:abc Get Allow {sources}")
    assert (decision(one, ip=ip) is not None) is matches


def test_entries_are_merged_by_resource() -> None:
    old = acl("Topic:a Pub Allow", "Topic:b Pub Allow")
    new = old.with_policies(
        acl("Topic:b All Deny", "Topic:c Sub Allow", default=("* Get Deny",)).policies
    )
    assert [
        f"{one.resource.key} {one.decision}" for policy in new.policies for one in policy.entries
    ] == ["Topic:a Allow", "Topic:b Deny", "Topic:c Allow", "* Deny"]
    assert old == acl("Topic:a Pub Allow", "Topic:b Pub Allow")


def test_a_policy_goes_with_its_last_entry() -> None:
    one = acl("Topic:a Pub Allow", default=("* Get Deny",))
    everything = parse_resource("*")
    assert everything is not None
    assert one.without(PolicyType.CUSTOM, everything) == one
    assert one.without(PolicyType.DEFAULT, everything) == acl("Topic:a Pub Allow")
    assert acl("Topic:a Pub Allow").without(PolicyType.CUSTOM, topic_resource("a")) == acl()


@pytest.mark.parametrize(
    ("key", "again"),
    [
        ("*", "*"),
        ("Topic:a", "Topic:a"),
        ("topic:a*", "Topic:a*"),
        ("GROUP:*", "Group:*"),
        ("Topic:a*b*", "Topic:a*"),
        ("Topic:a*b", "Topic:a*b"),
        ("Topic", "Topic:"),
        ("any:x", "*"),
        ("Topic:a:b", "Topic:a:b"),
    ],
)
def test_keys_of_resources(key: str, again: str) -> None:
    resource = parse_resource(key)
    assert resource is not None
    assert resource.key == again


@pytest.mark.parametrize("key", [None, "", " ", "Topics:a", ":a"])
def test_what_is_no_resource(key: str | None) -> None:
    assert parse_resource(key) is None


def test_a_request_without_the_field() -> None:
    nameless = topic_resource(None)
    assert nameless.key == "Topic:null"
    for key, matches in (("Topic:*", True), ("*", True), ("Topic:a*", False), ("Topic:a", False)):
        resource = parse_resource(key)
        assert resource is not None
        assert resource.matches(nameless) is matches
