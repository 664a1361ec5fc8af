"""Real brokers with ACL: nothing comes around the gate, files are followed, a slave takes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tests.broker.hot_path_world import send_fields
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, pull_fields

ACCOUNTS = f"""
accounts:
- accessKey: stranger-1
  secretKey: stranger-secret
  topicPerms: [Own=PUB|SUB]
  groupPerms: [strangers=SUB]
- accessKey: application
  secretKey: application-secret
  topicPerms: [{TOPIC}=PUB|SUB]
  groupPerms: [faults=SUB]
- accessKey: operator
  secretKey: operator-secret
  admin: true
"""
TOOLS = "accessKey: operator\nsecretKey: operator-secret\n"
APPLICATION = RequestSigner("application", "application-secret")
OPERATOR = RequestSigner("operator", "operator-secret")
NEIGHBOUR = RequestSigner("stranger-1", "stranger-secret")
"""Another application's account, with rights of its own only."""
STRANGER = RequestSigner("application", "another-secret")


class SignedClient(FrameClient):
    """A FrameClient that signs; `by` None: it does not."""

    def __init__(self, address: tuple[str, int], by: RequestSigner | None) -> None:
        super().__init__(address)
        self._by = by

    def post(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand.request(code, texts, body)
        if self._by is not None:
            self._by.sign(command)
        self._sock.sendall(encode_command(command))
        return command.opaque


def client(broker: OurBroker, by: RequestSigner | None, port: str = "main") -> SignedClient:
    return SignedClient(("127.0.0.1", broker.ports[port]), by)


def home_of(root: Path, accounts: str) -> Path:
    """A broker's rocketmqHome with its access files."""
    conf = root / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(accounts)
    (conf / "tools.yml").write_text(TOOLS)
    return root


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path).running() as found:
        yield found


def start_master(group: Group, home: Path) -> OurBroker:
    return group.start(group.first, ASYNC_MASTER, aclEnable="true", rocketmqHome=home)


def test_sends_and_pulls_are_guarded_and_an_operator_is_one(group: Group, tmp_path: Path) -> None:
    broker = start_master(group, home_of(tmp_path / "home", ACCOUNTS))
    for nobody in (None, STRANGER):
        with client(broker, nobody) as unknown:
            refused = unknown.send(TOPIC, 0, b"lost")
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "AclException: " in refused.remark
            assert unknown.pull(TOPIC, 0, 0).code == ResponseCode.SYSTEM_ERROR
    with client(broker, APPLICATION) as application:
        assert application.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
        wait_until(lambda: application.offset(30, TOPIC, 0) == 1)
        assert [m.body for m in application.pull(TOPIC, 0, 0).messages] == [b"kept"]
        assert application.send("Other", 0, b"lost").code == ResponseCode.SYSTEM_ERROR
    change = {"accessKey": "new-account", "secretKey": "new-secret"}
    for by, code in ((APPLICATION, ResponseCode.SYSTEM_ERROR), (OPERATOR, ResponseCode.SUCCESS)):
        with client(broker, by, "vip") as asking:
            answer = asking.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, change)
            assert answer.code == code, answer.remark
    with client(broker, RequestSigner("new-account", "new-secret")) as new:
        assert new.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).code == ResponseCode.SUCCESS


def test_a_changed_file_counts_soon(group: Group, tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", ACCOUNTS)
    broker = start_master(group, home)
    with client(broker, None) as anybody:
        assert anybody.send(TOPIC, 0, b"1").code == ResponseCode.SYSTEM_ERROR
        path = home / "conf" / "plain_acl.yml"
        path.write_text(f"{ACCOUNTS}\nglobalWhiteRemoteAddresses: ['127.0.0.1']\n")
        wait_until(lambda: anybody.send(TOPIC, 0, b"2").code == ResponseCode.SUCCESS, 10)
        path.write_text(f"{ACCOUNTS}\nglobalWhiteRemoteAddresses: ['10.0']\n")
        wait_until(lambda: "plain_acl.yml:" in broker.log("remoting"), 10)
        assert anybody.send(TOPIC, 0, b"3").code == ResponseCode.SUCCESS


def has_all_tables(operator: SignedClient) -> bool:
    """Offsets count once the slave's log has come so far: some looks after the topics."""
    status = json.loads(operator.call(RequestCode.GET_BROKER_HA_STATUS, {}).body)
    kinds = status["slaveSync"].values()
    return len(kinds) == 4 and all(kind.get("lastSuccessTimestamp") for kind in kinds)


def test_a_slave_follows_with_its_account_and_takes_the_files(group: Group, tmp_path: Path) -> None:
    master_home = home_of(tmp_path / "home-1", ACCOUNTS)
    slave_home = home_of(tmp_path / "home-2", "")
    first = start_master(group, master_home)
    second = group.start(
        group.second, SLAVE, aclEnable="true", rocketmqHome=slave_home, slaveSyncInterval=200
    )
    with client(first, APPLICATION) as application:
        assert application.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
    wait_until(lambda: log_of(second) == log_of(first), 20)
    copy = slave_home / "conf" / "plain_acl.yml"
    wait_until(lambda: copy.read_text() == ACCOUNTS, 20)
    with client(second, APPLICATION) as application:
        # The file is there a moment before it counts.
        wait_until(lambda: application.call(30, {"topic": TOPIC, "queueId": 0}).code == 0)
        wait_until(lambda: application.offset(30, TOPIC, 0) == 1)
        assert [m.body for m in application.pull(TOPIC, 0, 0).messages] == [b"kept"]
    with client(second, OPERATOR) as operator:
        wait_until(lambda: has_all_tables(operator))


def test_without_acl_everybody_sends_and_operators_come_from_named_addresses(
    group: Group,
) -> None:
    broker = group.start(group.first, ASYNC_MASTER, adminAllowedAddresses="10.0.0.0/8")
    with client(broker, None) as anybody:
        assert anybody.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
        answer = anybody.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "adminAllowedAddresses (now 10.0.0.0/8)" in (answer.remark or "")
        assert anybody.offset(30, TOPIC, 0) >= 0


def placed(answer: RemotingCommand) -> dict[str, str]:
    """Where a message is: the fields of 33 and 36."""
    return {"offset": str(int(answer.ext_fields["msgId"][-16:], 16))}


def sent(by: SignedClient, topic: str, properties: str = "", **changes: object) -> RemotingCommand:
    answer = by.call(310, send_fields(topic=topic, properties=properties, **changes), b"secret")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def test_a_message_named_by_its_place_is_its_owners(group: Group, tmp_path: Path) -> None:
    """33 and 36 name an offset, 37 a half message: another account may neither read nor end."""
    broker = start_master(group, home_of(tmp_path / "home", ACCOUNTS))
    with client(broker, APPLICATION) as owner, client(broker, NEIGHBOUR) as other:
        back = {"group": "strangers", "delayLevel": "-1"}
        for properties in ("", "DELAY\x0118\x02"):
            place = placed(sent(owner, TOPIC, properties))
            for code, fields in ((33, place), (33, {"topic": "Own", **place}), (36, place | back)):
                answer = other.call(code, fields)
                assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
                assert "AclException: No default permission for topic:" in (answer.remark or "")
        mine = placed(sent(owner, TOPIC))
        assert owner.call(33, mine).code == ResponseCode.SUCCESS
        assert owner.call(36, mine | {"group": "faults", "delayLevel": "-1"}).code == 0
        own = placed(sent(other, "Own"))
        assert other.call(33, own).code == ResponseCode.SUCCESS
        assert other.call(36, own | back).code == ResponseCode.SUCCESS
    with client(broker, OPERATOR) as operator:
        wait_until(lambda: len(operator.pull("%DLQ%strangers", 0, 0).messages) == 1)


def pushed(by: SignedClient, timeout_s: float) -> list[int]:
    """The codes of the requests that the broker sends to a client within so long, or the first."""
    codes: list[int] = []
    deadline = time.monotonic() + timeout_s
    while not codes and (left_s := deadline - time.monotonic()) > 0:
        by._sock.settimeout(left_s)
        try:
            by._frames.feed(by._sock.recv(1 << 18))
        except TimeoutError:
            break
        while (command := by._frames.next_command()) is not None:
            codes.append(command.code)
    return codes


def test_a_half_message_is_shown_to_its_owners(group: Group, tmp_path: Path) -> None:
    """39 hands it over; any account may call itself a producer of the group."""
    broker = group.start(
        group.first,
        ASYNC_MASTER,
        aclEnable="true",
        rocketmqHome=home_of(tmp_path / "home", ACCOUNTS),
        transactionCheckInterval=50,
        transactionTimeOut=0,
    )
    beat = {"producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    with client(broker, APPLICATION) as owner, client(broker, NEIGHBOUR) as other:
        body = json.dumps({"clientID": "theirs", **beat}).encode()
        assert other.call(RequestCode.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS
        half = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01u\x02"
        sent(owner, TOPIC, half, born_timestamp=time.time_ns() // 1_000_000)
        with client(broker, OPERATOR) as operator:
            wait_until(lambda: operator.offset(30, "RMQ_SYS_TRANS_HALF_TOPIC", 0) > 2)
        body = json.dumps({"clientID": "mine", **beat}).encode()
        assert owner.call(RequestCode.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS
        assert other.call(RequestCode.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS
        assert set(pushed(owner, 10.0)) == {RequestCode.CHECK_TRANSACTION_STATE}
        assert pushed(other, 0.1) == []


def held_fields(code: int) -> dict[str, object]:
    """Of a pull, pop or notification of TOPIC that waits."""
    if code == RequestCode.PULL_MESSAGE:
        return dict(pull_fields(TOPIC, 0, 0, count=32, suspend_ms=50_000))
    fields = {"consumerGroup": "faults", "topic": TOPIC, "queueId": 0, "maxMsgNums": 32}
    return fields | {"invisibleTime": 60_000, "pollTime": 50_000, "bornTime": 0, "initMode": 0}


def test_what_waits_is_judged_again(group: Group, tmp_path: Path) -> None:
    """Pulls, pops and notifications of an account that is revoked meanwhile are given nothing;
    another account's change does not disturb them."""
    broker = start_master(group, home_of(tmp_path / "home", ACCOUNTS))
    account = {"accessKey": "application", "secretKey": "application-secret"}
    other = {"accessKey": "stranger-1", "secretKey": "stranger-secret-2"}
    with client(broker, OPERATOR) as operator:

        def change(fields: dict[str, str]) -> None:
            answer = operator.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

        assert operator.send(TOPIC, 0, b"first").code == ResponseCode.SUCCESS
        wait_until(lambda: operator.offset(30, TOPIC, 0) == 1)
        with client(broker, APPLICATION) as application:
            # Taken and passed over, so that the next pop waits.
            assert application.call(200050, held_fields(200050) | {"initMode": 1}).code == 0
        for changed in ({"groupPerms": "faults=DENY"}, {"secretKey": "application-secret-2"}):
            change(account | {"groupPerms": "faults=SUB"})
            held = waiting(broker, operator)
            change(account | changed)
            assert operator.send(TOPIC, 0, b"secret").code == ResponseCode.SUCCESS
            for answer in taken(held):
                assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
                assert "AclException: " in (answer.remark or "")
            change(account | {"groupPerms": "faults=SUB"})
            with client(broker, APPLICATION) as application:
                assert application.call(200050, held_fields(200050)).code == 0
        held = waiting(broker, operator)
        change(other)
        assert operator.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
        pull, _notification, pop = held  # The pop leaves nothing to be notified of.
        for answer in taken([pull, pop]):
            assert (answer.code, b"kept" in answer.body) == (ResponseCode.SUCCESS, True)


def waiting(broker: OurBroker, operator: SignedClient) -> list[tuple[SignedClient, int]]:
    """A pull, a pop and a notification that wait."""
    codes = (RequestCode.PULL_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POP_MESSAGE)
    offset = operator.offset(30, TOPIC, 0)
    held = []
    for code in codes:
        asking = client(broker, APPLICATION)
        held.append((asking, asking.post(code, held_fields(code) | {"queueOffset": offset})))
    wait_until(lambda: held_by(operator, "faults"))
    return held


def taken(held: list[tuple[SignedClient, int]]) -> list[RemotingCommand]:
    answers = [asking.take(opaque, 10) for asking, opaque in held]
    for asking, _opaque in held:
        asking.close()
    return answers


def held_by(asking: SignedClient, group: str) -> bool:
    """Whether a pop of TOPIC waits; what was posted before it waits, too, or soon."""
    fields = {"consumerGroup": group, "topic": TOPIC, "queueId": 0}
    return asking.call(200055, fields).ext_fields.get("pollingNum") == "1"


@pytest.mark.parametrize("decision", [8, 12])
def test_a_transaction_is_ended_by_an_account_that_may_send(
    group: Group, tmp_path: Path, decision: int
) -> None:
    broker = start_master(group, home_of(tmp_path / "home", ACCOUNTS))
    with client(broker, APPLICATION) as owner, client(broker, NEIGHBOUR) as other:
        half = sent(owner, TOPIC, "TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01u\x02")
        end = {
            "producerGroup": "producers",
            "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": placed(half)["offset"],
            "commitOrRollback": str(decision),
            "msgId": "u",
        }
        for fields in (end, end | {"topic": "Own"}):
            answer = other.call(37, fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert f"No default permission for topic:{TOPIC}" in (answer.remark or "")
        assert owner.offset(30, TOPIC, 0) == 0
        assert owner.call(37, end).code == ResponseCode.SUCCESS
        wait_until(lambda: owner.offset(30, TOPIC, 0) == (decision == 8))


def test_secrets_are_nowhere_but_in_their_files(group: Group, tmp_path: Path) -> None:
    """Not in logs, on the terminal, in dumps of settings (26, 28, 52) or in what `ps` shows."""
    home = home_of(tmp_path / "home", ACCOUNTS)
    path = home / "conf" / "plain_acl.yml"
    path.chmod(0o600)
    broker = start_master(group, home)
    forger = RequestSigner("operator", "guessed-secret")
    shown: list[bytes] = []
    for by in (APPLICATION, OPERATOR, forger, None):
        with client(broker, by) as asking:
            asking.send(TOPIC, 0, b"x")
            change = {"accessKey": "new-account", "secretKey": "brand-new-secret"}
            asking.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, change)
            for code in (26, 28, 52, 17):
                answer = asking.call(code, {"topic": "a\nb"})
                text = f"{answer.remark} {answer.ext_fields}".encode()
                shown += [answer.body, text]
    shown += [broker.output().encode(), broker.logs().encode()]
    for pid in (broker.pid, *broker.children().values()):
        for name in ("cmdline", "environ"):
            shown.append(Path(f"/proc/{pid}/{name}").read_bytes())
    for secret in (b"application-secret", b"operator-secret", b"stranger-secret", b"brand-new"):
        assert [text for text in shown if secret in text] == []
    for kept in (path, path.with_name("plain_acl.yml.bak")):
        assert kept.stat().st_mode & 0o777 == 0o600, kept
    assert "brand-new-secret" in path.read_text()
