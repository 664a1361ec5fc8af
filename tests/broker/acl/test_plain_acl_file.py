"""broker.acl.plain_acl_file: the file's form, its errors with their lines, and writing it."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from broker.acl.permission import Permission
from broker.acl.plain_acl_file import (
    PlainAccessConfig,
    PlainAclFile,
    build_account,
)
from broker.acl.plain_acl_text import parse_plain_acl
from conf.errors import ConfigError
from remoting.body.data_version import DataVersion

PUB, SUB, DENY = Permission.PUB, Permission.SUB, Permission.DENY
ADVICE = (
    "use an address (10.1.2.3, 2001:db8::1), a list (10.1.2.{3,4}), or * and ranges in an "
    "address (10.1.*.*, 10.1.2.3-50)"
)
KEYS = "accessKey and secretKey are required and must be longer than 6 characters"
RIGHTS = "expected name=PERM, for example topicA=PUB|SUB"
FILE_KEYS = "globalWhiteRemoteAddresses, accounts, dataVersion"
ACCOUNT_KEYS = (
    "accessKey, secretKey, whiteRemoteAddress, admin, defaultTopicPerm, defaultGroupPerm, "
    "topicPerms, groupPerms"
)
WHOLE = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC = SUB
    groupPerms:
      # a comment
      - groupA=DENY
      - groupB=SUB|PUB

  - accessKey: rocketmq2
    secretKey: "012345678"
    whiteRemoteAddress: 192.168.1.*
    admin: true
dataVersion:
  - counter: 3
    timestamp: 1700000000000
"""


def test_the_form_of_the_original() -> None:
    parsed = parse_plain_acl(WHOLE, "f.yml")
    assert parsed == PlainAclFile(
        white_addresses=("10.10.103.*", "192.168.0.*"),
        accounts=(
            PlainAccessConfig(
                access_key="RocketMQ",
                secret_key="12345678",
                default_topic_perm="DENY",
                default_group_perm="SUB",
                topic_perms=("topicA=DENY", "topicB=PUB|SUB", "topicC = SUB"),
                group_perms=("groupA=DENY", "groupB=SUB|PUB"),
            ),
            PlainAccessConfig(
                access_key="rocketmq2",
                secret_key="012345678",
                white_remote_address="192.168.1.*",
                admin=True,
            ),
        ),
        data_version=DataVersion(counter=3, timestamp=1_700_000_000_000),
    )
    assert [account.source for account in parsed.accounts] == ["f.yml:7", "f.yml:22"]
    assert "12345678" not in repr(parsed), "keys are not for logs"


def test_an_account_is_checked_by_topics_and_retry_topics() -> None:
    first, second = map(build_account, parse_plain_acl(WHOLE, "f.yml").accounts)
    assert first.permissions == {
        "topicA": DENY,
        "topicB": PUB | SUB,
        "topicC": SUB,
        "%RETRY%groupA": DENY,
        "%RETRY%groupB": PUB | SUB,
    }
    assert (first.default_topic_permission, first.default_group_permission) == (DENY, SUB)
    assert (first.secret_key, first.admin) == (b"12345678", False)
    assert not first.white_addresses.matches("192.168.1.1")
    assert second.white_addresses.matches("192.168.1.1")
    assert (second.default_topic_permission, second.default_group_permission) == (DENY, DENY)
    assert (second.permissions, second.admin) == ({}, True)
    assert "12345678" not in repr(first)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "---\n", "accounts:\nglobalWhiteRemoteAddresses:\n"]
)
def test_a_file_without_accounts(text: str) -> None:
    assert parse_plain_acl(text, "f.yml") == PlainAclFile()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "f.yml:1: not YAML: expected the node content, but found '<stream end>'"),
        (
            "a: \x01",
            "f.yml: not YAML: unacceptable character #x0001: special characters are not allowed\n"
            '  in "<unicode string>", position 3',
        ),
        ("- a\n", "f.yml:1: the file: expected lines of the form 'key: value'"),
        (
            "\naccount:\n",
            "f.yml:2: unknown key 'account'; expected one of " + FILE_KEYS,
        ),
        (
            "accounts:\naccounts:\n",
            "f.yml:2: accounts appears twice in the file; keep one of the two",
        ),
        ("accounts: x\n", "f.yml:1: accounts: expected a list (lines starting with '- ')"),
        ("accounts:\n  a: b\n", "f.yml:2: accounts: expected a list (lines starting with '- ')"),
        ("accounts:\n- x\n", "f.yml:2: an account: expected lines of the form 'key: value'"),
        ("accounts:\n- accessKey: [a]\n", "f.yml:2: accessKey: expected a single plain value"),
        ("accounts:\n- ? [a]\n  : b\n", "f.yml:2: a key: expected a single plain value"),
        (
            "accounts:\n- topicPerm: x\n",
            "f.yml:2: unknown key 'topicPerm'; expected one of " + ACCOUNT_KEYS,
        ),
        ("accounts:\n- admin: maybe\n", "f.yml:2: admin = maybe: expected true or false"),
        (
            "globalWhiteRemoteAddresses:\n- 10.0.0.1\n- 10.0\n",
            "f.yml:3: globalWhiteRemoteAddresses: '10.0' has 2 parts instead of 4; " + ADVICE,
        ),
        ("dataVersion:\n- counter: x\n", "f.yml:2: counter = x: expected a whole number"),
    ],
)
def test_a_wrong_file_names_its_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_plain_acl(text, "f.yml")
    assert str(caught.value) == problem


def account(**values: object) -> PlainAccessConfig:
    base = PlainAccessConfig(access_key="RocketMQ", secret_key="12345678", source="f.yml:7")
    return replace(base, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            account(access_key=""),
            "account ?: " + KEYS,
        ),
        (
            account(access_key="sixsix"),
            "account sixsix: " + KEYS,
        ),
        (
            account(secret_key="123456"),
            "account RocketMQ: " + KEYS,
        ),
        (
            account(topic_perms=("a",)),
            "account RocketMQ: topicPerms: 'a': " + RIGHTS,
        ),
        (
            account(group_perms=("a=b=c",)),
            "account RocketMQ: groupPerms: 'a=b=c': " + RIGHTS,
        ),
        (
            account(white_remote_address="10.0"),
            "account RocketMQ: whiteRemoteAddress: '10.0' has 2 parts instead of 4; " + ADVICE,
        ),
    ],
)
def test_an_account_that_cannot_be_used(config: PlainAccessConfig, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_account(config)
    assert str(caught.value) == f"f.yml:7: {problem}"


def test_an_unknown_permission_is_denied_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        built = build_account(account(topic_perms=("a=PUBSUB", "b=ANY"), default_group_perm="sub"))
    assert built.permissions == {"a": DENY, "b": DENY}
    assert built.default_group_permission == DENY
    assert caplog.messages == [
        f"f.yml:7: account RocketMQ: unknown permission {word!r} treated as DENY (expected one of "
        "DENY, PUB, SUB, PUB|SUB, SUB|PUB)"
        for word in ("sub", "PUBSUB", "ANY")
    ]


def test_what_is_written_is_read_again_and_java_finds_its_types() -> None:
    parsed = parse_plain_acl(WHOLE, "f.yml")
    text = parsed.dump()
    assert parse_plain_acl(text, "g.yml") == parsed
    tree = yaml.safe_load(text)
    assert tree["dataVersion"] == [{"counter": 3, "timestamp": 1_700_000_000_000}]
    assert [one["admin"] for one in tree["accounts"]] == [False, True]
    assert [one["secretKey"] for one in tree["accounts"]] == ["12345678", "012345678"]


_texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))).map(str.strip)
_accounts = st.builds(
    PlainAccessConfig,
    access_key=_texts,
    secret_key=_texts,
    white_remote_address=_texts,
    admin=st.booleans(),
    default_topic_perm=_texts,
    default_group_perm=_texts,
    topic_perms=st.lists(_texts).map(tuple),
    group_perms=st.lists(_texts).map(tuple),
)


@given(st.lists(_accounts), st.none() | st.builds(DataVersion, counter=st.integers(0, 2**62)))
def test_any_values_survive_the_file(
    accounts: list[PlainAccessConfig], version: DataVersion | None
) -> None:
    values = PlainAclFile(accounts=tuple(accounts), data_version=version)
    assert parse_plain_acl(values.dump(), "f.yml") == values


def test_the_shipped_file_lets_nobody_in() -> None:
    path = Path(__file__).parents[3] / "conf" / "plain_acl.yml"
    parsed = parse_plain_acl(path.read_text(encoding="utf-8"), str(path))
    assert parsed == PlainAclFile()


def test_the_shipped_example_works_without_its_comment_signs() -> None:
    path = Path(__file__).parents[3] / "conf" / "plain_acl.yml"
    lines = path.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line[1:] for line in lines if re.match(r"#(?! \S|$)", line))
    parsed = parse_plain_acl(text, "example")
    assert [build_account(one).admin for one in parsed.accounts] == [False, True]
    assert parsed.white_addresses == ("10.10.103.*",)
