"""mqadmin itself: usage, errors, exit codes, JSON, repetition, questions, start-up cost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from remoting.body.kv_table import KVTable
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.support.every_row import every_row
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tools.command_table import COMMANDS
from tools.mqadmin import load_command, main

CLOSED = "127.0.0.1:1"
READING = {
    "clusterList": [],
    "topicList": [],
    "topicRoute": ["-t", "GTopic"],
    "topicStatus": ["-t", "GTopic"],
    "topicClusterList": ["-t", "GTopic"],
    "allocateMQ": ["-t", "GTopic", "-i", "a,b"],
    "consumerProgress": ["-g", "G_group"],
    "queryMsgByKey": ["-t", "GTopic", "-k", "kB"],
    "getNamesrvConfig": [],
    "statsAll": ["-t", "GTopic"],
}
"""Commands that only show something and can be answered by golden frames."""


def not_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str | None = None) -> None:
    """Give mqadmin a stdin: a terminal where `answer` is typed, or none."""

    class Stdin:
        def isatty(self) -> bool:
            return answer is not None

        def readline(self) -> str:
            return f"{answer}\n"

        def __iter__(self) -> Iterator[str]:
            return iter([f"{answer}\n"])

    monkeypatch.setattr(sys, "stdin", Stdin())
    monkeypatch.setattr(
        "click.termui.visible_prompt_func", lambda prompt="": sys.stdin.readline().strip()
    )


@every_row("name", COMMANDS)
def test_every_command_has_help_and_the_common_options(name: str) -> None:
    command = load_command(name)
    options = {opt for parameter in command.params for opt in parameter.opts}
    assert {"-n", "--namesrvAddr", "--json", "--interval"} <= options
    letters = [
        opt for p in command.params for opt in p.opts if opt.startswith("-") and len(opt) == 2
    ]
    assert len(letters) == len(set(letters)), "a letter with two meanings"


@every_row("name", COMMANDS)
def test_what_asks_can_be_told_yes(name: str) -> None:
    options = {opt for parameter in load_command(name).params for opt in parameter.opts}
    assert ("--yes" in options) == ("(asks)" in COMMANDS[name].description)


ELSE_I = {
    "updateSubGroup": "--brokerId",
    "allocateMQ": "--ipList",
    "queryMsgById": "--msgId",
    "queryMsgByUniqueKey": "--msgId",
    "queryMsgByOffset": "--queueId",
    "queryMsgTraceById": "--msgId",
    "queryCq": "--index",
    "resendDlq": "--msgId",
    "printMsgByQueue": "--queueId",
    "sendMessage": "--qid",
    "consumeMessage": "--queueId",
    "consumerStatus": "--clientId",
    "updateAclConfig": "--defaultTopicPerm",
    "createAcl": "--sourceIp",
    "updateAcl": "--sourceIp",
}
"""The commands where -i means something else, in the original or as in its queryMsgById."""


@every_row("name", COMMANDS)
def test_the_letter_i_repeats_unless_the_original_means_something_else(name: str) -> None:
    (owner,) = (p for p in load_command(name).params if "-i" in p.opts)
    assert ELSE_I.get(name, "--interval") in owner.opts


def test_another_name_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "deleteAccessConfig"]) == 0
    assert "mqadmin deleteAclConfig [OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["help"], ["-h"]])
def test_the_list_of_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in listed if line.startswith("   ")} == set(COMMANDS)


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "topicstatus"]) == 0
    assert "mqadmin topicStatus [OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["topicStat"], "mqadmin: the sub command topicStat does not exist; the nearest is"),
        (["help", "sendmesage"], "mqadmin: the sub command sendmesage does not exist; the nearest"),
        (["topicStatus"], "mqadmin topicStatus: Missing option '-t' / '--topic'."),
        (["topicStatus", "-t", "a", "b"], "mqadmin topicStatus: Got unexpected extra argument (b)"),
        (["clusterList", "-i", "x"], "mqadmin clusterList: Invalid value for '-i'"),
        (["sendMessage", "-t", "a", "-p", "b", "-i", "1"], "mqadmin sendMessage: -i QUEUE needs"),
        (["consumeMessage", "-t", "a", "-o", "1"], "mqadmin consumeMessage: -o OFFSET needs"),
        (["updateTopic", "-t", "a"], "mqadmin updateTopic: one of -b ADDRESS and -c CLUSTER"),
        (["queryMsgById", "-i", "00", "-g", "g"], "mqadmin queryMsgById: -g GROUP and -d CLIENT"),
        (["printMsg", "-t", "a", "-c", "martian"], "mqadmin printMsg: -c: unknown charset martian"),
        (["consumeMessage", "-t", "a", "-i", "1"], "mqadmin consumeMessage: -i QUEUE needs"),
        (["consumeMessage", "-t", "a", "-s", "2", "-e", "1"], "mqadmin consumeMessage: -s, -e:"),
        (["consumerProgress", "-t", "a"], "mqadmin consumerProgress: -t and -s need a group"),
        (["allocateMQ", "-t", "a", "-i", "x,x"], "mqadmin allocateMQ: -i: a comma list"),
        (["getBrokerConfig"], "mqadmin getBrokerConfig: one of -b ADDRESS and -c CLUSTER is"),
        (["updateAclConfig", "-a", "a", "-s", "b"], "mqadmin updateAclConfig: one of -b ADDRESS"),
        (["updateTopicPerm", "-t", "a", "-p", "8"], "mqadmin updateTopicPerm: Invalid value for"),
        (["updateOrderConf", "-t", "a", "-m", "x"], "mqadmin updateOrderConf: Invalid value for"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith(line)


def test_names_of_commands_in_any_case(mqadmin: Bench) -> None:
    assert mqadmin.run("TOPICLIST").code == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["topicStatus", "-t", "GTopik"], "topic GTopik does not exist; the nearest is GTopic"),
        (["clusterList", "-c", "Golden"], "cluster Golden does not exist"),
        (["wipeWritePerm", "-b", "broker-h"], "broker name broker-h does not exist; the"),
        (["queryMsgById", "-i", "zz"], "'zz' is not an offset message id (32 hex digits"),
        (["consumerConnection", "-g", "G_group"], "no consumer of group G_group is online"),
        (["consumeMessage", "-t", "GTopic", "-s", "noon"], "time 'noon' is neither milliseconds"),
        (["sendMessage", "-t", "GTopic", "-p", "x", "-b", "b"], "topic GTopic: broker name b does"),
        (["statsAll", "-t", "GTopik"], "topic GTopik does not exist; the nearest is GTopic"),
        (["consumeMessage", "-t", "GTopic", "-b", "b"], "topic GTopic has no readable queue at"),
        (["printMsgByQueue", "-t", "GTopic", "-a", "b", "-i", "0", "-f", "true"], "broker name b"),
    ],
)  # fmt: skip
def test_refusals_are_one_line_and_exit_code_1(
    mqadmin: Bench, arguments: list[str], line: str
) -> None:
    outcome = mqadmin.run(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith(f"mqadmin {arguments[0]}: {line}")


def test_a_remark_of_several_lines_becomes_one(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_TOPIC_STATS_INFO] = lambda request: request.response(
        1, "first\x1b[31m\nsecond"
    )
    outcome = mqadmin.run("topicStatus", "-t", "GTopic")
    expected = f"{cluster.address} answered SYSTEM_ERROR (1): first\\x1b[31m"
    assert outcome.err == f"mqadmin topicStatus: {expected}\n"


def test_a_body_that_is_no_json_is_an_error(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(
        0, body=b"{"
    )
    outcome = mqadmin.run("clusterList")
    assert outcome.code == 1
    assert "ClusterInfo" in outcome.err


def test_options_come_after_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "topicList"]) == 2
    assert "'--json'. (options come after the command; mqadmin help" in capsys.readouterr().err


class TestNameServers:
    def test_a_broker_that_is_named_as_one(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        remark = "request type 206 not supported"
        cluster.always(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, 3, remark)
        outcome = mqadmin.run("topicList")
        assert outcome.code == 1
        assert f"(3): {remark}; is it a name server? Brokers answer this" in outcome.err

    def test_the_next_one_is_asked(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        servers = f"{CLOSED};{cluster.address}"
        assert mqadmin.run("topicList", servers=servers).code == 0

    def test_all_of_them_fail(self, mqadmin: Bench) -> None:
        outcome = mqadmin.run("topicList", servers=CLOSED)
        assert outcome.code == 1
        assert outcome.err.startswith(f"mqadmin topicList: no name server reachable: {CLOSED}: ")

    def test_the_environment_names_them(
        self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.address)
        assert main(["topicList"]) == 0

    def test_a_default_that_fails_is_said(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("tools.admin_client.DEFAULT_NAME_SERVER", CLOSED)
        assert main(["topicList"]) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "the default, as neither -n nor NAMESRV_ADDR is given" in err

    def test_what_is_no_address(self, mqadmin: Bench) -> None:
        outcome = mqadmin.run("topicList", servers="nonsense")
        assert outcome.err == "mqadmin topicList: name server 'nonsense' is not host:port\n"

    def test_a_change_must_reach_all(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        servers = f"{cluster.address};{CLOSED}"
        outcome = mqadmin.run(
            "updateKvConfig", "-s", "NS1", "-k", "k1", "-v", "v1", servers=servers
        )
        assert outcome.code == 1
        assert f"succeeded at name servers: {cluster.address}; failed: {CLOSED}" in outcome.err


class TestJson:
    @pytest.mark.parametrize("name", READING)
    def test_is_one_value_on_one_line(self, mqadmin: Bench, name: str) -> None:
        assert mqadmin.run_json(name, *READING[name])

    def test_numbers_are_numbers(self, mqadmin: Bench) -> None:
        row = mqadmin.run_json("topicStatus", "-t", "GTopic")[2]
        assert row == {
            "brokerName": "broker-g",
            "queueId": 2,
            "minOffset": 0,
            "maxOffset": 14,
            "lastUpdateTimestamp": 1795177737677,
        }

    def test_a_route_is_standard_json(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        route = mqadmin.run_json("topicRoute", "-t", "GTopic")
        assert route["brokerDatas"][0]["brokerAddrs"]["0"] == cluster.address

    def test_messages_are_a_list(self, mqadmin: Bench) -> None:
        options = ["-t", "GTopic", "-b", "broker-g", "-i", "3", "-c", "3"]
        messages = mqadmin.run_json("consumeMessage", *options)
        assert [message["body"] for message in messages] == [
            "tagged",
            "unicode properties",
            "flag -1, waitStoreMsgOK=false",
        ]
        assert messages[1]["properties"]["属性"] == "值-😀"

    def test_stays_valid_when_the_command_fails_on_the_way(self, mqadmin: Bench) -> None:
        outcome = mqadmin.run("consumeMessage", "-t", "GTopic", "--json")
        assert outcome.code == 1
        assert outcome.data == []


class TestRepetition:
    def test_runs_again_until_stopped(self, mqadmin: Bench) -> None:
        mqadmin.rounds = 3
        outcome = mqadmin.run("topicList", "-i", "2", "--json")
        assert (outcome.code, outcome.out.count("\n"), mqadmin.waits) == (0, 3, [2.0] * 3)

    def test_a_later_failure_does_not_end_it(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        mqadmin.rounds = 3
        asked = 0

        def answer(request: RemotingCommand) -> RemotingCommand:
            nonlocal asked
            asked += 1
            return request.response(1 if asked == 2 else 0, "busy", body=b'{"topicList":["T"]}')

        cluster.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = answer
        outcome = mqadmin.run("topicList", "-i", "1")
        assert (outcome.code, outcome.out) == (0, "T\nT\n")
        assert outcome.err.endswith("answered SYSTEM_ERROR (1): busy\n")

    def test_the_first_failure_ends_it(self, mqadmin: Bench) -> None:
        assert mqadmin.run("topicStatus", "-t", "nothing", "-i", "1").code == 1
        assert mqadmin.waits == []


class TestQuestions:
    LOSS = ("deleteTopic", "-t", "GAdminTopic", "-c", "GoldenCluster")

    def test_without_a_terminal_it_needs_yes(
        self, mqadmin: Bench, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        not_a_terminal(monkeypatch)
        outcome = mqadmin.run(*self.LOSS)
        assert outcome.code == 1
        assert "confirm with --yes" in outcome.err
        assert cluster.requests == []

    @pytest.mark.parametrize(("answer", "code"), [("n", 130), ("y", 0)])
    def test_the_answer_decides(
        self,
        mqadmin: Bench,
        cluster: FakeCluster,
        monkeypatch: pytest.MonkeyPatch,
        answer: str,
        code: int,
    ) -> None:
        not_a_terminal(monkeypatch, answer)
        assert mqadmin.run(*self.LOSS).code == code
        assert bool(cluster.asked(RequestCode.DELETE_TOPIC_IN_BROKER)) == (code == 0)

    @pytest.mark.parametrize(
        ("arguments", "question"),
        [
            (LOSS, "Delete topic GAdminTopic with all its messages from cluster GoldenCluster?"),
            (
                ("deleteSubGroup", "-g", "g", "-c", "c", "-r", "true"),
                "Delete subscription group g with its offsets from cluster c?",
            ),
            (
                ("deleteSubGroup", "-g", "g", "-b", "x:1"),
                "Delete subscription group g from broker x:1?",
            ),
            (
                ("deleteKvConfig", "-s", "n", "-k", "k"),
                "Delete key k of namespace n in every name server?",
            ),
            (
                ("cleanExpiredCQ",),
                "Delete consume queue files whose messages are gone at every cluster?",
            ),
            (
                ("cleanUnusedTopic", "-c", "c"),
                "Delete the queue files of topics that no longer exist at cluster c?",
            ),
            (
                ("deleteExpiredCommitLog", "-b", "x:1"),
                "Delete commit log files older than the time they are kept at broker x:1?",
            ),
        ],
    )
    def test_what_is_asked(
        self, mqadmin: Bench, cluster: FakeCluster, arguments: tuple[str, ...], question: str
    ) -> None:
        outcome = mqadmin.run(*arguments)
        assert outcome.err == (
            f"mqadmin {arguments[0]}: {question} Without a terminal, confirm with --yes\n"
        )
        assert cluster.requests == []

    @pytest.mark.parametrize(
        "name", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"]
    )
    def test_cleaning_every_broker(self, mqadmin: Bench, cluster: FakeCluster, name: str) -> None:
        cluster.answers |= dict.fromkeys((306, 316, 329), lambda request: request.response(0))
        outcome = mqadmin.run(name, "--yes")
        assert (outcome.code, outcome.out) == (0, "success\n")
        assert len(cluster.requests) == 3  # the name server, a master, a slave


class TestClusterList:
    def test_more_stats(self, mqadmin: Bench) -> None:
        heading, master, _slave = mqadmin.lines("clusterList", "-m")
        assert heading[-1] == "#OutTotalToday"
        assert len(master) == 6

    def test_a_dead_broker_has_its_row(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda request: request.response(
            1, "out of order"
        )
        outcome = mqadmin.run("clusterList")
        assert (outcome.code, len(outcome.out.splitlines())) == (0, 3)
        assert outcome.err.count("out of order") == 2

    def test_numbers_of_5x(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        table = {"getTransferredTps": "1.5 1 1", "putTps": "", "commitLogDiskRatio": "NaN?"}
        cluster.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda request: request.response(
            0, body=KVTable(table=table).to_json_bytes()
        )
        assert mqadmin.run_json("clusterList")[0]["outTps"] == 1.5


@pytest.mark.parametrize(
    ("earliest", "shown", "hour"),
    [
        ("1795177732448", "2.50", 2.5),
        ("1795186732448", "0.00", 0.0),
        ("1795186739999", "0.00", 0.0),  # Its clock is before ours.
        ("-1", "-", None),
        ("0", "-", None),
        (None, "-", None),
    ],
)
def test_the_age_of_the_earliest_message(
    mqadmin: Bench, cluster: FakeCluster, earliest: str | None, shown: str, hour: float | None
) -> None:
    """A Java broker says -1 when it does not know: not the hours since 1970."""
    table = {} if earliest is None else {"earliestMessageTimeStamp": earliest}
    body = json.dumps({"table": table}).encode()
    cluster.always(RequestCode.GET_BROKER_RUNTIME_INFO, body=body)
    mqadmin.now_ms = 1_795_186_732_448
    _, row, *_ = mqadmin.lines("clusterList")
    assert row[-2] == shown
    assert mqadmin.run_json("clusterList")[0]["hour"] == hour


def test_a_group_in_a_click_command_is_found_by_its_name() -> None:
    assert isinstance(load_command("statsAll"), click.Command)


def test_starts_without_rich_and_without_other_commands() -> None:
    """What keeps one command under 0.4 s: only its own modules are imported."""
    code = (
        "import sys; from tools.mqadmin import load_command; load_command('topicList');"
        "print([m for m in sys.modules if m.startswith(('rich', 'tools.commands.', 'yaml'))])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "['tools.commands.topic']"


def test_no_command_imports_what_is_slow() -> None:
    """Settings files, tables of numbers and colours cost more than a whole command."""
    code = (
        "import sys; from tools.command_table import COMMANDS;"
        "from tools.mqadmin import load_command; [load_command(name) for name in COMMANDS];"
        "print(sorted({'asyncio', 'javaproperties', 'numpy', 'rich', 'yaml'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
