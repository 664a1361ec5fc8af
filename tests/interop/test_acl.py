"""Java clients and mqadmin against a broker with ACL: who signs is served, nobody else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark.sources.errors import NoRightError
from tests.interop import harness
from tests.interop.accounts import ACCOUNTS, SECRETS
from tests.interop.clients import Client, wait_registered
from tests.interop.driver import Driver, DriverError
from tests.interop.processes import wait_until
from tests.interop.spark_rows import read_entries, read_lags

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

APPLICATION = {"access_key": "application", "secret_key": SECRETS["application"]}
OPERATOR = {"access_key": "operator", "secret_key": SECRETS["operator"]}
FORGER = {"access_key": "application", "secret_key": "not-the-secret"}
STRANGER = {"access_key": "stranger", "secret_key": SECRETS["stranger"]}


@dataclass(frozen=True)
class Guarded:
    """A broker with ACL, and where an mqadmin with the operator's account lives."""

    broker: harness.Broker
    directory: Path

    @property
    def file(self) -> Path:
        return self.directory / "java-home" / "conf" / "plain_acl.yml"

    def mqadmin(self, command: str, *arguments: str) -> str:
        """What Java's prints, with the operator's conf/tools.yml."""
        where = ("-b", self.broker.address)
        return harness.java_admin("4.9", self.directory, command, *where, *arguments)


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory,
    broker_kind: str,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
) -> Iterator[Guarded]:
    if broker_kind in harness.KINDS_5:
        pytest.skip("a 5.3.3 broker has other access control")
    directory = tmp_path_factory.mktemp("acl")
    conf = directory / "java-home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    (conf / "tools.yml").write_text("accessKey: operator\nsecretKey: operator-secret\n")
    settings = {"aclEnable": "true", "brokerClusterName": "GuardedCluster"}
    if broker_kind == "ours":
        settings["rocketmqHome"] = str(conf.parent)
    where = {"name": "broker-acl", "conf": settings}
    broker = harness.broker(broker_kind, directory, namesrv.address, **where)  # type: ignore[arg-type]
    broker.start()
    wait_registered(drivers("4.9.8"), namesrv.address, broker)
    yield Guarded(broker, directory)
    broker.stop()


@pytest.fixture
def topic(client: Client, guarded: Guarded) -> str:
    name = client.group().replace("group", "guarded")
    create_topic(client, guarded, name, OPERATOR)
    return name


def create_topic(client: Client, guarded: Guarded, name: str, account: dict[str, str]) -> None:
    where = {"namesrv": client.namesrv, "broker": guarded.broker.address}
    client.driver.call("topic.create", topic=name, queues=2, **where, **account)


def problem(client: Client, topic: str, account: dict[str, str]) -> str:
    """Why a send of this account fails."""
    producer = client.producer(**account)
    with pytest.raises(DriverError) as caught:
        client.driver.call("send.one", producer=producer.name, topic=topic, body="lost")
    return str(caught.value)


@pytest.mark.parametrize("kind", ["sync", "async", "batch", "oneway"])
def test_who_signs_sends_and_consumes(client: Client, topic: str, kind: str) -> None:
    sent = client.producer(**APPLICATION).send(topic, kind, 100)
    received = client.push(topic, **APPLICATION).wait_for(100)
    assert sorted(e.digest for e in received) == sorted(e.digest for e in sent)


def test_orderly_consumers_lock_with_their_account(client: Client, topic: str) -> None:
    client.producer(**APPLICATION).send(topic, "sync", 20)
    assert len(client.push(topic, orderly=True, **APPLICATION).wait_for(20)) == 20


def test_lite_pull_consumers_sign_too(client: Client, topic: str) -> None:
    client.producer(**APPLICATION).send(topic, "sync", 20)
    assert len(client.lite(topic, **APPLICATION).wait_for(20)) == 20


def test_a_security_token_is_signed_with_the_rest(client: Client, topic: str) -> None:
    sent = client.producer(token="a token", **APPLICATION).send(topic, "sync", 1)
    assert [entry.note for entry in sent] == ["SEND_OK"]


@pytest.mark.parametrize(
    ("account", "text"),
    [
        ({}, "AclException: No accessKey is configured"),
        (STRANGER, "AclException: No acl config for stranger"),
        (FORGER, "AclException: Check signature failed for accessKey=application"),
    ],
    ids=["unsigned", "stranger", "forger"],
)
def test_nobody_else_sends(client: Client, topic: str, account: dict[str, str], text: str) -> None:
    assert text in problem(client, topic, account)


def test_nobody_else_consumes(client: Client, topic: str) -> None:
    others = [client.push(topic, **account) for account in ({}, STRANGER, FORGER)]
    others.append(client.push(topic, group="closed", **APPLICATION))
    client.producer(**APPLICATION).send(topic, "sync", 20)
    client.push(topic, **APPLICATION).wait_for(20)
    assert [other.count() for other in others] == [0, 0, 0, 0]


def test_spark_reads_with_an_account(client: Client, topic: str, tmp_path: Path) -> None:
    """docs/spark_sources.md: the account's keys are in a file."""
    sent = client.producer(**APPLICATION).send(topic, "sync", 20)
    file = keys(tmp_path, APPLICATION)
    wait_until(lambda: len(read_entries(client.namesrv, topic, aclFile=file)) == len(sent), "all")
    for account, who in ((STRANGER, "account stranger"), (FORGER, "account application")):
        with pytest.raises(NoRightError, match=f"the cluster refuses the {who}"):
            read_entries(client.namesrv, topic, aclFile=keys(tmp_path, account))
    with pytest.raises(NoRightError, match="the cluster refuses unsigned requests"):
        read_entries(client.namesrv, topic)
    with pytest.raises(NoRightError):
        read_entries(client.namesrv, topic, group="closed", aclFile=keys(tmp_path, APPLICATION))


def test_spark_reads_lag_with_an_account(client: Client, topic: str, tmp_path: Path) -> None:
    """One group by its name (208), and all of them at once (317)."""
    client.producer(**APPLICATION).send(topic, "sync", 20)
    consumer = client.push(topic, **APPLICATION)
    consumer.wait_for(20)
    where = {"topics": topic, "cluster": "GuardedCluster"}

    def consumed(of: str) -> int:
        file = keys(tmp_path, APPLICATION)
        rows = read_lags(client.namesrv, of, aclFile=file, **where)
        return sum(row["consumer_offset"] for row in rows if not row["is_retry"])

    wait_until(lambda: consumed(consumer.group) == 20, "its progress is committed")
    assert consumed("") == 20
    for file in ({}, {"aclFile": keys(tmp_path, STRANGER)}):
        for of in (consumer.group, ""):
            with pytest.raises(NoRightError, match="the cluster refuses"):
                read_lags(client.namesrv, of, **where, **file)


def keys(directory: Path, account: dict[str, str]) -> str:
    """A file with an account."""
    path = directory / "account.yml"
    path.write_text("accessKey: {access_key}\nsecretKey: {secret_key}\n".format(**account))
    return str(path)


def test_a_right_is_one_of_a_topic(client: Client, guarded: Guarded) -> None:
    create_topic(client, guarded, "read-only", OPERATOR)
    text = problem(client, "read-only", APPLICATION)
    assert "AclException: No default permission for topic:read-only" in text


def test_topics_are_made_by_admins(client: Client, guarded: Guarded) -> None:
    with pytest.raises(DriverError) as caught:
        create_topic(client, guarded, "nobodys", APPLICATION)
    text = "Need admin permission for request code=17, but accessKey=application is not"
    assert f"AclException: {text}" in str(caught.value)


def test_messages_are_found_by_their_ids(client: Client, guarded: Guarded, topic: str) -> None:
    """A 4.9 broker refuses the signature of a client since 4.9.4 that asks by unique id."""
    producer = client.producer(**APPLICATION)
    (sent,) = producer.send(topic, "sync", 1)
    ids = [sent.offset_msg_id, *([sent.msg_id] if guarded.broker.kind == "ours" else [])]
    asked = {"producer": producer.name, "topic": topic}

    def found() -> bool:
        answers = [client.driver.submit("query.id", msg_id=each, **asked) for each in ids]
        return all(answer.exception(30) is None for answer in answers)

    wait_until(found, "the message found by each of its ids")


def test_mqadmin_of_java_keeps_accounts(clients: Callable[[str], Client], guarded: Guarded) -> None:
    client = clients("4.9.8")
    name = client.group().replace("group", "kept")
    create_topic(client, guarded, name, OPERATOR)
    account = {"access_key": "newcomer", "secret_key": "newcomer-secret"}
    assert "No acl config for newcomer" in problem(client, name, account)
    made = ("-a", "newcomer", "-s", "newcomer-secret", "-t", f"{name}=PUB")
    assert "success" in guarded.mqadmin("updateAclConfig", *made)
    assert len(client.producer(**account).send(name, "sync", 1)) == 1
    versions = guarded.mqadmin("clusterAclConfigVersion")
    assert str(guarded.file) in versions
    assert "get broker's plain access config version success." in versions
    assert "success" in guarded.mqadmin("deleteAclConfig", "-a", "newcomer")
    wait_until(
        lambda: "No acl config for newcomer" in problem(client, name, account), "the account gone"
    )
    white = guarded.mqadmin("updateGlobalWhiteAddr", "-g", "10.9.9.9", "-p", str(guarded.file))
    assert "success" in white
    assert "10.9.9.9" in guarded.file.read_text()
