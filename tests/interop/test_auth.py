"""Users and ACLs of 5.x: ours and a 5.5.0 broker, asked the same, answer the same.

One broker of each kind with the same settings. Requests are signed and sent as they are, and the
answers compared: of the twelve operators' codes, of wrong senders, and of random ACLs, whose
entries are decided by the order that Java's sort leaves them in. Both made users of the accounts in
the same plain_acl.yml at their start. Then RocketMQ's mqadmin works with both, and a Java client
with right and wrong credentials with ours.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.signature import RequestSigner
from spark.sources.errors import NoRightError
from tests.interop import harness
from tests.interop.accounts import ACCOUNTS
from tests.interop.clients import Client, Cluster, wait_registered
from tests.interop.driver import Driver, DriverError
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.spark_rows import read_lags, read_rows
from tests.support.lite_parent import group_body, parent_fields
from tests.support.our_broker import FrameClient
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.stored_queues import StoredQueues

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

_PACKAGE: Final = "org.apache.rocketmq.auth."
SETTINGS: Final = {
    "brokerClusterName": "AuthCluster",
    "authenticationEnabled": "true",
    "authenticationProvider": _PACKAGE + "authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        _PACKAGE + "authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
    "authorizationEnabled": "true",
    "authorizationProvider": _PACKAGE + "authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        _PACKAGE + "authorization.provider.LocalAuthorizationMetadataProvider"
    ),
    "migrateAuthFromV1Enabled": "true",
    "authenticationWhitelist": "26",
    "authorizationWhitelist": "352",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
ROOT: Final = ("root", "root-secret")
TOOLS: Final = "accessKey: root\nsecretKey: root-secret\n"


@dataclass(frozen=True)
class Pair:
    """Both brokers."""

    java: harness.Broker
    ours: harness.Broker

    def both(self, ask: Callable[[Asker], Any]) -> tuple[Any, Any]:
        """What `ask` gives with the Java broker, and with ours."""
        results = []
        for broker in (self.java, self.ours):
            with broker.client() as client:
                results.append(ask(Asker(client)))
        return results[0], results[1]


@dataclass(frozen=True)
class Asker:
    """Signed requests over one connection."""

    client: FrameClient

    def ask(
        self,
        code: int,
        fields: Mapping[str, str],
        body: Any = None,
        *,
        sender: tuple[str, str] | None = ROOT,
    ) -> tuple[int, str, Any]:
        """Code, remark and body of the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        request = RemotingCommand.request(code, dict(fields), data)
        if sender is not None:
            RequestSigner(*sender).sign(request)
        answer = self.client.call(code, request.ext_fields, data)
        text = bytes(answer.body)
        return answer.code, answer.remark or "", json.loads(text) if text else None

    def create_user(self, name: str, **more: str) -> None:
        """A user whose password is its name and "-secret"."""
        body = {"username": name, "password": f"{name}-secret", **more}
        assert self.ask(3001, {"username": name}, body)[0] == 0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, namesrv: harness.NameServer) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("auth")
    for kind in ("java", "ours"):
        conf = directory / kind / "java-home" / "conf"
        conf.mkdir(parents=True)
        (conf / "plain_acl.yml").write_text(ACCOUNTS)
    home = {"rocketmqHome": str(directory / "ours" / "java-home")}
    brokers = [
        harness.broker("java-5.5", directory / "java", None, name="broker-auth", conf=SETTINGS),
        harness.broker(
            "ours", directory / "ours", namesrv.address, name="broker-auth", conf=SETTINGS | home
        ),
    ]
    try:
        with ThreadPoolExecutor() as threads:
            for started in [threads.submit(broker.start) for broker in brokers]:
                started.result()
        yield Pair(*brokers)
    finally:
        for broker in brokers:
            broker.end()


@dataclass(frozen=True)
class Step:
    """One request."""

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: Any = None
    sender: tuple[str, str] | None = ROOT


def policy(*entries: tuple[str, str, str], kind: str | None = None) -> dict[str, Any]:
    """resource, actions, decision of each."""
    return {
        "policyType": kind,
        "entries": [
            {"resource": resource, "actions": actions.split(","), "decision": decision}
            for resource, actions, decision in entries
        ],
    }


def acl(*policies: dict[str, Any], subject: str = "User:bob") -> dict[str, Any]:
    return {"subject": subject, "policies": list(policies)}


BOB, EVE = ("bob", "bob-secret"), ("eve", "eve-secret")
USER: Final = {"username": "bob"}
OF_BOB: Final = {"subject": "User:bob"}
NEW_TOPIC: Final = {
    "topic": "t",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
STEPS: Final = (
    Step(3004, {"username": "root"}),
    Step(3004, {"username": "inner"}),
    Step(3004, {"username": "nobody"}),
    Step(3004, {"username": " "}),
    Step(3001, USER, {"password": "bob-secret"}),
    Step(3001, USER, {"password": "bob-secret"}),
    Step(3001, {"username": "nopassword"}, {"password": " "}),
    Step(3001, {"username": ""}, {"password": "x"}),
    Step(3001, {"username": "eve"}, {"password": "eve-secret", "userType": "normal"}),
    Step(3004, USER),
    Step(3005, {"filter": "o"}),
    Step(3005, {"filter": "nobody"}),
    Step(3002, {"username": "nobody"}, {"password": "x"}),
    # Who is refused, and with which words.
    Step(202, {"topic": "t"}, sender=None),
    Step(202, {"topic": "t"}, sender=("stranger", "x")),
    Step(202, {"topic": "t"}, sender=("bob", "wrong")),
    Step(202, {"topic": "t"}, sender=BOB),
    Step(310, {"b": "t", "a": "p"}, sender=BOB),
    Step(310, {"b": "%RETRY%g", "a": "g"}, sender=BOB),
    Step(320, {"b": "t", "a": "p"}, sender=BOB),
    Step(11, {"topic": "t", "consumerGroup": "g"}, sender=BOB),
    Step(11, {"topic": "%RETRY%g", "consumerGroup": "g"}, sender=BOB),
    Step(36, {"group": "g", "offset": "0", "delayLevel": "0"}, sender=BOB),
    Step(370, {"topic": "t", "recallHandle": "x"}, sender=BOB),
    Step(38, {"consumerGroup": "g"}, sender=BOB),
    Step(14, {"consumerGroup": "g", "topic": "t", "queueId": "0"}, sender=BOB),
    Step(14, {"consumerGroup": "g", "topic": "%RETRY%g", "queueId": "0"}, sender=BOB),
    Step(29, {"topic": "%RETRY%g", "queueId": "0", "timestamp": "0"}, sender=BOB),
    Step(30, {"topic": "t", "queueId": "0"}, sender=BOB),
    Step(17, NEW_TOPIC, sender=BOB),
    Step(215, {"topic": "t"}, sender=BOB),
    Step(207, {"groupName": "g"}, sender=BOB),
    Step(208, {"consumerGroup": "g", "topic": ""}, sender=BOB),
    Step(203, {"consumerGroup": "g"}, sender=BOB),
    Step(328, {}, sender=BOB),
    Step(315, {"statsName": "a", "statsKey": "b"}, sender=BOB),
    Step(906, {}, {}, sender=BOB),
    Step(34, {}, {"clientID": "c", "consumerDataSet": [{"groupName": "g"}]}, sender=BOB),
    Step(41, {}, {"consumerGroup": "g", "clientId": "c", "mqSet": []}, sender=BOB),
    Step(3001, {"username": "x"}, {"password": "x"}, sender=BOB),
    Step(3004, USER, sender=BOB),
    # Lists of the whitelists: 26 needs no signature, 352 no right.
    Step(352, {"group": "CLIENT_INNER_PRODUCER"}, sender=BOB),
    # ACLs.
    Step(3009, OF_BOB),
    Step(3009, {"subject": "User:nobody"}),
    Step(
        3006, {"subject": "User:nobody"}, acl(policy(("*", "All", "Allow")), subject="User:nobody")
    ),
    Step(3006, OF_BOB, acl(policy(("Topic:a*", "Pub,sub", "allow"), ("*", "Get", "Deny")))),
    Step(3009, OF_BOB),
    Step(3007, OF_BOB, acl(policy(("Topic:a*", "All", "Deny"), ("Group:g", "Sub", "Allow")))),
    Step(3007, OF_BOB, acl(policy(("Topic:*", "Get", "Allow"), kind="default"))),
    Step(3009, {"subject": "user:bob"}),
    Step(3010, {"subjectFilter": "bo"}),
    Step(3010, {"subjectFilter": "ob", "resourceFilter": "Group"}),
    Step(3010, {"resourceFilter": "bob"}),
    Step(3010, {"resourceFilter": "nothing"}),
    Step(3006, OF_BOB, acl(policy(("Topic", "Pub", "Allow")))),
    Step(3006, OF_BOB, acl(policy(("Nothing:x", "Pub", "Allow")))),
    Step(3006, OF_BOB, acl(policy(("Topic:x", "Any", "Allow")))),
    Step(3006, OF_BOB, acl(policy(("Topic:x", "Pub", "Perhaps")))),
    Step(3006, OF_BOB, acl({"policyType": None, "entries": []})),
    Step(3008, {**OF_BOB, "resource": "Topic:a*"}),
    Step(3008, {**OF_BOB, "resource": "Topic:unheard"}),
    Step(3009, OF_BOB),
    Step(3008, {**OF_BOB, "resource": "Topic:*", "policyType": "Default"}),
    Step(3009, OF_BOB),
    Step(3008, OF_BOB),
    Step(3009, OF_BOB),
    Step(3008, OF_BOB),
    Step(3008, {"subject": "User:nobody"}),
    Step(3008, {"subject": "Nothing:bob"}),
    # An operator of the cluster that is no SUPER user.
    Step(
        3006,
        {"subject": "User:eve"},
        acl(policy(("Cluster:*", "All", "Allow")), subject="User:eve"),
    ),
    Step(3001, {"username": "x"}, {"password": "x", "userType": "Super"}, EVE),
    Step(3002, {"username": "eve"}, {"userType": "Super"}, EVE),
    Step(3002, {"username": "root"}, {"password": "eves"}, EVE),
    Step(3003, {"username": "root"}, sender=EVE),
    Step(3002, USER, {"userStatus": "disable"}, EVE),
    Step(202, {"topic": "t"}, sender=BOB),
    Step(3002, USER, {"userStatus": "Enable", "userType": "super"}),
    Step(351, {"topic": "unheard-of"}, sender=BOB),
    Step(3003, USER),
    Step(3003, USER),
    Step(3003, {"username": " "}),
    Step(202, {"topic": "t"}, sender=BOB),
    Step(3003, {"username": "eve"}),
)


def test_accounts_of_4_9_are_taken_over_alike(pair: Pair) -> None:
    java, ours = pair.both(lambda asker: [asker.ask(code, {})[2] for code in (3005, 3010)])
    assert java == ours
    users, acls = ours
    assert {user["username"]: user["userType"] for user in users} == {
        "application": "Normal",
        "inner": "Super",
        "operator": "Super",
        "root": "Super",
    }
    assert [one["subject"] for one in acls] == ["User:application"]


def test_the_same_is_answered(pair: Pair) -> None:
    def run(asker: Asker) -> list[tuple[int, str, Any]]:
        return [asker.ask(one.code, one.fields, one.body, sender=one.sender) for one in STEPS]

    java, ours = pair.both(run)
    different = [
        (step, its, mine)
        for step, its, mine in zip(STEPS, java, ours, strict=True)
        if comparable(step, its) != comparable(step, mine)
    ]
    assert different == []


def comparable(step: Step, answer: tuple[int, str, Any]) -> tuple[int, str, Any]:
    """Java's remark of a success is "not set any response code"; 352 shows a group's settings."""
    code, remark, body = answer
    return code, "" if code == 0 else remark, None if step.code == 352 else body


PARENT, LITE_GROUP = "AuthLite", "GAuthLite"
RIGHTS: Final = {
    "whole": [(f"Topic:{PARENT}", "Pub,Sub", "Allow"), (f"Group:{LITE_GROUP}", "Sub", "Allow")],
    "nogroup": [(f"Topic:{PARENT}", "Pub,Sub", "Allow")],
    "notopic": [(f"Group:{LITE_GROUP}", "Sub", "Allow")],
    "nosend": [(f"Topic:{PARENT}", "Sub", "Allow"), (f"Group:{LITE_GROUP}", "Sub", "Allow")],
}
"""User to what he may."""


def test_lite_topics_need_rights_on_their_parent_and_group(pair: Pair) -> None:
    """Java's broker asks nothing of who subscribes or pops (only its proxy does): ours does."""

    def run(asker: Asker) -> dict[str, list[int]]:
        parent = {key: str(value) for key, value in parent_fields(PARENT).items()}
        assert asker.ask(17, parent | {"writeQueueNums": "1", "readQueueNums": "1"})[0] == 0
        assert asker.ask(200, {}, group_body(LITE_GROUP, PARENT))[0] == 0
        found = {}
        for name, entries in RIGHTS.items():
            asker.create_user(name)
            subject = f"User:{name}"
            allowed = acl(policy(*entries), subject=subject)
            assert asker.ask(Code.AUTH_CREATE_ACL, {"subject": subject}, allowed)[0] == 0
            found[name] = [
                asker.ask(code, fields, body, sender=(name, f"{name}-secret"))[0]
                for code, fields, body in lite_requests(name)
            ]
        return found

    java, ours = pair.both(run)
    assert ours == {
        "whole": [0, 0, 210, 0],
        "nogroup": [0, 16, 16, 16],
        "notopic": [16, 16, 16, 16],
        "nosend": [16, 0, 210, 0],
    }
    assert java == {name: [sent, 0, 210, acked] for name, (sent, _, _, acked) in ours.items()}


def lite_requests(client_id: str) -> list[tuple[int, dict[str, str], Any]]:
    """A send, a subscription of another lite topic, a pop, an ack."""
    now_ms = str(int(time.time() * 1000))
    sent = {"a": "p", "b": PARENT, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": now_ms}
    sent |= {"h": "0", "i": "__LITE_TOPIC\x01s1\x02", "j": "0", "k": "false", "m": "false"}
    change: dict[str, Any] = {"action": "PARTIAL_ADD", "clientId": client_id, "group": LITE_GROUP}
    change |= {"topic": PARENT, "liteTopicSet": ["none"], "version": 0}
    where = {"consumerGroup": LITE_GROUP, "topic": PARENT}
    popped = {"clientId": client_id, "maxMsgNum": "32", "invisibleTime": "60000", "pollTime": "0"}
    acked = {"queueId": "0", "offset": "0", "liteTopic": "s1"}
    acked["extraInfo"] = f"0 {now_ms} 60000 999 0 broker-auth 0 0"
    return [
        (310, sent, ""),
        (200071, {}, {"subscriptionSet": [change]}),
        (200070, where | popped, None),
        (200051, where | acked, None),
    ]


NAMES: Final = ("Topic:abc", "Topic:ab*", "Topic:a*", "Topic:*", "*", "Group:*")
ACTIONS: Final = ("Get", "Sub", "All", "Pub,Get")
SOURCES: Final = (None, None, None, ["127.0.0.1"], ["127.0.0.0/8"], ["10.0.0.0/8", "::1"])


def random_policies(chance: random.Random) -> list[dict[str, Any]]:
    """Entries of one or both policies, in any order."""
    policies = []
    for kind in chance.sample(["Custom", "Default"], chance.choice([1, 1, 2])):
        entries = [
            {
                "resource": resource,
                "actions": chance.choice(ACTIONS).split(","),
                "sourceIps": chance.choice(SOURCES),
                "decision": chance.choice(["Allow", "Deny"]),
            }
            for resource in chance.sample(NAMES, chance.randint(1, len(NAMES)))
        ]
        policies.append({"policyType": kind, "entries": entries})
    return policies


def test_the_same_entry_decides(pair: Pair) -> None:
    """Who may look at a topic: Get on abc, abd, and another; of 80 random ACLs."""
    chance = random.Random(20)
    lists = [random_policies(chance) for _ in range(80)]

    def run(asker: Asker) -> list[tuple[int, str]]:
        asker.create_user("judged")
        got = []
        for policies in lists:
            body = {"subject": "User:judged", "policies": policies}
            assert asker.ask(3006, {"subject": "User:judged"}, body)[0] == 0
            for topic in ("abc", "abd", "z"):
                code, remark, _ = asker.ask(
                    351, {"topic": topic}, sender=("judged", "judged-secret")
                )
                got.append((code, remark if code == 16 else ""))
            assert asker.ask(3008, {"subject": "User:judged"})[0] == 0
        return got

    java, ours = pair.both(run)
    assert java == ours
    words = {remark.rpartition(", ")[2] for _, remark in ours}
    assert words == {"", "no matched policies.", "the decision is deny."}


# -- mqadmin -----------------------------------------------------------------------------------

_TO: Final = "-b {broker}"
_BOB: Final = "-s User:bob -r Topic:orders*,Group:g -a Pub,Sub"
COMMANDS: Final = (
    f"createUser {_TO} -u bob -p bob-secret",
    f"createUser {_TO} -u ann -p ann-secret -t Super",
    f"createUser {_TO} -u bob -p again",
    f"updateUser {_TO} -u bob -p bob-new-secret",
    f"updateUser {_TO} -u bob -s disable",
    f"getUser {_TO} -u bob",
    f"listUser {_TO}",
    f"createAcl {_TO} {_BOB} -d Allow",
    f"updateAcl {_TO} -s User:bob -r Group:g -a All -d Deny -i 10.0.0.0/8,::1",
    f"createAcl {_TO} -s User:ann -r * -a All -d Allow",
    f"createAcl {_TO} -s User:nobody -r * -a All -d Allow",
    f"getAcl {_TO} -s User:bob",
    f"listAcl {_TO}",
    f"listAcl {_TO} -r Group",
    "copyUser -f {broker} -t {other} -u bob,ann",
    "copyAcl -f {broker} -t {other} -s User:bob,User:ann",
    f"deleteAcl {_TO} -s User:bob -r Group:g",
    f"getAcl {_TO} -s User:bob",
    f"deleteUser {_TO} -u bob",
    f"deleteUser {_TO} -u ann",
    f"listUser {_TO}",
)


@pytest.fixture
def signing(drivers: Callable[[str], Driver]) -> Iterator[Driver]:
    """A 5.x driver whose mqadmin signs as root."""
    driver = drivers(CLIENT_5)
    tools = driver.home / "conf" / "tools.yml"
    tools.parent.mkdir(parents=True, exist_ok=True)
    tools.write_text(TOOLS)
    yield driver
    tools.unlink()


def test_mqadmin_prints_the_same(pair: Pair, signing: Driver) -> None:
    """It copies from the one to the other, too."""

    def run(broker: harness.Broker, other: harness.Broker) -> list[str]:
        said = []
        for command in COMMANDS:
            words = command.format(broker=broker.address, other=other.address).split()
            out, err = signing.mqadmin_texts(*words)
            text = f"{command}\n{plain(out)}{causes(err)}"
            said.append(text.replace(broker.address, "HERE").replace(other.address, "THERE"))
        assert sum("success" in each for each in said) == 12, said
        return said

    java = run(pair.java, pair.ours)
    for name in ("bob", "ann"):
        # What was copied to ours.
        assert f"{name}-" in signing.mqadmin("getUser", "-b", pair.ours.address, "-u", name)
        signing.mqadmin("deleteUser", "-b", pair.ours.address, "-u", name)
    ours = run(pair.ours, pair.java)
    for name in ("bob", "ann"):
        signing.mqadmin("deleteUser", "-b", pair.java.address, "-u", name)
    assert ours == java


def plain(text: str) -> str:
    """Without stack traces, whose line numbers are those of the tool."""
    return "\n".join(line for line in text.splitlines() if not re.match(r"\s+at |\s*\.\.\.", line))


def causes(text: str) -> str:
    """Why a command failed. Other clients of the JVM might write to stderr, too."""
    return "\n".join(re.findall(r"^Caused by: .*", text, re.MULTILINE))


# -- clients -----------------------------------------------------------------------------------


@pytest.fixture
def client(
    drivers: Callable[[str], Driver], namesrv: harness.NameServer, pair: Pair
) -> Iterator[Client]:
    wait_registered(drivers(CLIENT_5), namesrv.address, pair.ours)
    client = Client(drivers(CLIENT_5), Cluster(namesrv, pair.ours))
    yield client
    client.end()


def problem(client: Client, topic: str, account: dict[str, str]) -> str:
    """Why a send of this account fails."""
    producer = client.producer(**account)
    with pytest.raises(DriverError) as caught:
        client.driver.call("send.one", producer=producer.name, topic=topic, body="lost")
    return str(caught.value)


def test_a_client_with_its_rights_only(client: Client, pair: Pair) -> None:
    topic, application = "AuthOrders", {"access_key": "app", "secret_key": "app-secret"}
    root = {"access_key": ROOT[0], "secret_key": ROOT[1]}
    where = {"namesrv": client.namesrv, "broker": pair.ours.address}
    client.driver.call("topic.create", topic=topic, queues=2, **where, **root)
    with pair.ours.client() as connection:
        asker = Asker(connection)
        asker.create_user("app")
        assert "User:app has no permission to access Topic:AuthOrders" in problem(
            client, topic, application
        )
        entries = policy(("Topic:Auth*", "Pub,Sub,Get", "Allow"), ("Group:*", "Sub", "Allow"))
        asker.ask(Code.AUTH_CREATE_ACL, {"subject": "User:app"}, acl(entries, subject="User:app"))
        sent = client.producer(**application).send(topic, "sync", 50)
        received = client.push(topic, **application).wait_for(50)
        assert sorted(one.digest for one in received) == sorted(one.digest for one in sent)
        assert "check signature failed." in problem(
            client, topic, {"access_key": "app", "secret_key": "not-the-secret"}
        )
        assert "User:nobody is not found." in problem(
            client, topic, {"access_key": "nobody", "secret_key": "x"}
        )
        assert "username cannot be null." in problem(client, topic, {})
        # One that was not created would be looked for at every broker of the name server.
        client.driver.call("topic.create", topic="Other", queues=1, **where, **root)
        assert "Topic:Other" in problem(client, "Other", application)
        asker.ask(Code.AUTH_UPDATE_USER, {"username": "app"}, {"userStatus": "disable"})
        assert "User:app is disabled." in problem(client, topic, application)


TOPIC_FIELDS: Final = {
    "topic": "Sparks",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
LAG_COLUMNS: Final = ("topic", "cluster", "consumer_offset", "lag")
SEND_FIELDS: Final = {
    "a": "P",
    "b": "Sparks",
    "c": "TBW102",
    "d": "1",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "u_seq\x011",
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "false",
}


def test_spark_reads_with_its_rights_only(pair: Pair, tmp_path: Path) -> None:
    """docs/spark_sources.md: Sub and Get of the topic, Sub of the group. A name server that wants
    no account stands before each broker."""
    keys = tmp_path / "spark.yml"
    for broker in (pair.java, pair.ours):
        with broker.client() as client, running_cluster() as names:
            asker = Asker(client)
            assert asker.ask(17, TOPIC_FIELDS)[0] == 0
            request = RemotingCommand.request(310, dict(SEND_FIELDS), b"x")
            RequestSigner(*ROOT).sign(request)
            assert client.call(310, request.ext_fields, b"x").code == 0
            route = StoredQueues(names)
            route.topic("Sparks")
            route.routes["Sparks"].broker_datas[0].broker_addrs[0] = broker.address
            with pytest.raises(NoRightError, match="refuses unsigned requests"):
                read_rows(names.address, "Sparks")
            keys.write_text("accessKey: spark\nsecretKey: spark-secret\n")
            with pytest.raises(NoRightError, match="refuses the account spark"):
                read_rows(names.address, "Sparks", aclFile=str(keys))
            asker.create_user("spark")
            with pytest.raises(NoRightError, match="refuses the account spark"):
                read_rows(names.address, "Sparks", aclFile=str(keys))
            entries = policy(("Topic:Sparks", "Sub,Get", "Allow"), ("Group:*", "Sub", "Allow"))
            made = acl(entries, subject="User:spark")
            assert asker.ask(Code.AUTH_CREATE_ACL, {"subject": "User:spark"}, made)[0] == 0
            wait_until(lambda: read_rows(names.address, "Sparks", aclFile=str(keys)), "the message")
            (row,) = read_rows(names.address, "Sparks", aclFile=str(keys))
            assert row["body"] == b"x"
            _lags_with_rights(asker, names, broker, str(keys))


def _lags_with_rights(asker: Asker, names: FakeCluster, broker: harness.Broker, keys: str) -> None:
    """Get of the group and the topic for a group by its name, of the cluster for all at once."""
    addresses = {"broker-auth": {"0": broker.address}}
    members = {"brokerName": "broker-auth", "cluster": "AuthCluster"}
    table = {
        "brokerAddrTable": {"broker-auth": members | {"brokerAddrs": addresses["broker-auth"]}},
        "clusterAddrTable": {"AuthCluster": ["broker-auth"]},
    }
    names.always(Code.GET_BROKER_CLUSTER_INFO, body=json.dumps(table).encode())
    progress = {"consumerGroup": "readers", "topic": "Sparks", "queueId": "0", "commitOffset": "1"}
    assert asker.ask(200, {}, {"groupName": "readers"})[0] == 0
    assert asker.ask(15, progress)[0] == 0

    def lags(of: str, **account: str) -> list[tuple[str, str, int, int]]:
        rows = read_lags(names.address, of, **account)
        found = [row for row in rows if row["consumer_group"] == "readers"]
        return [tuple(row[key] for key in LAG_COLUMNS) for row in found]

    for of in ("readers", ""):
        with pytest.raises(NoRightError, match="refuses unsigned requests"):
            lags(of)
        with pytest.raises(NoRightError, match="refuses the account spark"):
            lags(of, aclFile=keys)
    for resource, of in (("Group:readers", "readers"), ("Cluster:AuthCluster", "")):
        entries = policy(
            ("Topic:Sparks", "Sub,Get", "Allow"),
            ("Group:*", "Sub,Get", "Allow"),
            (resource, "Get", "Allow"),
        )
        made = acl(entries, subject="User:spark")
        assert asker.ask(Code.AUTH_UPDATE_ACL, {"subject": "User:spark"}, made)[0] == 0

        def told(of: str = of) -> bool:
            try:
                return lags(of, aclFile=keys) == [("Sparks", "AuthCluster", 1, 0)]
            except NoRightError:
                return False

        wait_until(told, f"the lag of {of or 'all groups'}")


def test_ours_keeps_them_in_files_of_its_own(pair: Pair) -> None:
    directory = pair.ours.store_dir / "config"
    for name in ("users.json", "acls.json"):
        assert directory.joinpath(name).stat().st_mode & 0o777 == 0o600
    log = Path(pair.ours.process.log_path).read_text()
    for secret in ("root-secret", "inner-secret", "app-secret"):
        assert secret not in log
