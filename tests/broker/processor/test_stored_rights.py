"""broker.processor.stored_rights: whose a message is that a request names by its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from broker.acl.acl_table import AclError, AclTable
from broker.acl.permission import Permission
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from broker.auth.acl_conversion import new_acl
from broker.auth.policy import Action
from broker.auth.resource import topic_resource
from broker.processor.stored_rights import to_read, to_send_back
from broker.topic.system_topics import SystemTopics, is_internal_topic
from remoting.address_patterns import NOBODY
from remoting.body.auth import AclInfo
from tests.broker.broker_fakes import request_of

INTERNAL: Final = (
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
)
USED_BY_CLIENTS: Final = (
    *("TBW102", "BenchmarkTest", "SELF_TEST_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    "rmq_sys_TRACE_DATA_eu",
    *("DefaultCluster_REPLY_TOPIC", "%DLQ%g", "orders"),
)
HOME: Final = b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"


def stored(topic: str, properties: bytes = b"") -> Any:
    return SimpleNamespace(topic=topic, properties=properties)


@pytest.mark.parametrize("topic", INTERNAL)
def test_what_waits_belongs_to_the_topic_that_it_waits_for(topic: str) -> None:
    assert to_read(stored(topic, HOME)) == {"orders": Permission.SUB}
    both = {"orders": Permission.SUB, topic: Permission.SUB}
    assert to_send_back(stored(topic, HOME), "g") == both
    assert to_read(stored(topic)) == to_send_back(stored(topic), "g") == {topic: Permission.SUB}


def test_elsewhere_the_property_says_nothing() -> None:
    """A client may send it."""
    for topic in ("mine", "%RETRY%g", "%DLQ%g", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_eu"):
        assert to_read(stored(topic, HOME)) == to_send_back(stored(topic, HOME), "g")
        assert to_read(stored(topic, HOME)) == {topic: Permission.SUB}


def test_what_a_group_has_popped_again_it_may_send_back() -> None:
    """It was refused to accounts without a right on a group that is named like group and topic."""
    for topic in ("%RETRY%g_orders", "%RETRY%g+orders"):
        assert to_send_back(stored(topic, HOME), "g") == {"orders": Permission.SUB}
        for other in ("other", "", "g_orders", "g_"):
            assert to_send_back(stored(topic), other) == {topic: Permission.SUB}
    inside = stored("%RETRY%g_SCHEDULE_TOPIC_XXXX", HOME)
    assert to_send_back(inside, "g") == {"SCHEDULE_TOPIC_XXXX": Permission.SUB}


def test_every_system_topic_is_one_or_the_other() -> None:
    assert all(map(is_internal_topic, INTERNAL))
    assert not any(map(is_internal_topic, USED_BY_CLIENTS))
    assert set(SystemTopics().names()) <= {*INTERNAL, *USED_BY_CLIENTS}


def may_read(topic: str, **account: Any) -> bool:
    """With a default of SUB, on an account of 4.9."""
    config = PlainAccessConfig(
        access_key="application",
        secret_key="application-secret",
        **{"default_topic_perm": "PUB|SUB", "default_group_perm": "SUB", **account},
    )
    table = AclTable(NOBODY, {"application": build_account(config)})
    request = request_of(33, AccessKey="application")
    try:
        table.check_resources("10.0.0.9", request, {topic: Permission.SUB})
    except AclError:
        return False
    return True


def test_a_default_does_not_open_the_brokers_own_topics() -> None:
    assert [topic for topic in INTERNAL if may_read(topic)] == []
    assert [topic for topic in USED_BY_CLIENTS if not may_read(topic)] == []
    for topic in INTERNAL:
        assert may_read(topic, topic_perms=(f"{topic}=SUB",))
        assert may_read(topic, admin=True)
        assert may_read(topic, admin=True, topic_perms=("orders=SUB",))


def may_sub(topic: str, *rules: tuple[str, str]) -> bool:
    """With entries of 5.x: (resource, decision)."""
    entries = [
        {"resource": resource, "actions": ["All"], "decision": decision}
        for resource, decision in rules
    ]
    acl = new_acl(
        AclInfo.from_json({"subject": "User:app", "policies": [{"entries": entries}]}), None
    )
    by_name = is_internal_topic(topic)
    found = acl.find_entry(topic_resource(topic), (Action.SUB,), "10.0.0.9", by_name=by_name)
    return found is not None and found.decision == "Allow"


def test_nor_does_an_entry_that_does_not_name_them() -> None:
    for topic in INTERNAL:
        wide = (("Topic:*", "Allow"), ("*", "Allow"), (f"Topic:{topic[:9]}*", "Allow"))
        assert not may_sub(topic, *wide)
        assert may_sub(topic, *wide, (f"Topic:{topic}", "Allow"))
        assert not may_sub(topic, (f"Topic:{topic}", "Deny"), *wide)
        # The most particular one decides, and of two alike a Deny, as in RocketMQ 5.5.
        by_name = (f"Topic:{topic}", "Allow")
        assert may_sub(topic, by_name, (f"Topic:{topic[:9]}*", "Deny"))
        assert not may_sub(topic, by_name, (f"Topic:{topic}", "Deny"))
    assert all(may_sub(topic, ("Topic:*", "Allow")) for topic in USED_BY_CLIENTS)
