"""listDlq, resendDlq and exportDlq as the operator sees them."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench, Outcome
from tests.tools.stored_queues import Stored, StoredQueues
from tests.tools.test_mqadmin import not_a_terminal

DLQ = "%DLQ%g"


class Operator:
    """mqadmin in front of a group with two dead letters, stored at 12:28:50 and ten s later."""

    def __init__(self, mqadmin: Bench, cluster: FakeCluster, directory: Path) -> None:
        self.mqadmin = mqadmin
        self.directory = directory
        self.stored = StoredQueues(cluster)
        self.stored.topic("orders")
        self.stored.consumers["orders"] = ["g"]
        first = {"RETRY_TOPIC": "orders", "UNIQ_KEY": "AB", "TAGS": "a", "KEYS": "k"}
        self.stored.topic(
            DLQ,
            [[Stored(first, stored_ms=1795177730000), Stored({"RETRY_TOPIC": "orders"})]],
        )
        mqadmin.now_ms = 1795177760000
        self.ids = [self.stored.letter_id(DLQ, 0, place) for place in (0, 1)]

    def run(self, name: str, *arguments: str) -> Outcome:
        """A command about the group, with an audit file of the test."""
        audit = [] if name == "exportDlq" else ["--auditFile", str(self.directory / "audit")]
        return self.mqadmin.run(name, "-g", "g", *arguments, *audit)

    def data(self, name: str, *arguments: str) -> Any:
        """The JSON of a command that must succeed."""
        outcome = self.run(name, *arguments, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.data


@pytest.fixture
def operator(mqadmin: Bench, cluster: FakeCluster, tmp_path: Path) -> Operator:
    return Operator(mqadmin, cluster, tmp_path)


class TestList:
    def test_newest_first(self, operator: Operator) -> None:
        outcome = operator.run("listDlq")
        assert (outcome.code, outcome.err) == (0, "")
        heading, *rows = outcome.out.splitlines()
        assert heading.split("#")[1].strip() == "Letter ID"
        assert [row.split()[0] for row in rows] == operator.ids[::-1]
        letter = f"{operator.ids[0]} orders 2 2026-11-20 12:28:50 30 s 5 - AB a k"
        assert " ".join(rows[1].split()) == letter

    def test_data(self, operator: Operator) -> None:
        _, oldest = operator.data("listDlq")
        assert oldest == {
            "msgId": "AB",
            "letterId": operator.ids[0],
            "originTopic": "orders",
            "originMsgId": None,
            "reconsumeTimes": 2,
            "bornTimestamp": 1000,
            "storeTimestamp": 1795177730000,
            "ageMs": 30_000,
            "keys": "k",
            "tags": "a",
            "bodySize": 5,
            "brokerName": "broker-g",
            "queueId": 3,
            "queueOffset": 0,
            "resentTimestamp": None,
            "resentMsgId": None,
            "mayBeResent": False,
        }

    def test_says_what_was_resent(self, operator: Operator) -> None:
        operator.data("resendDlq", "-i", "AB", "--yes")
        newest, oldest = operator.data("listDlq")
        assert (oldest["resentTimestamp"], oldest["resentMsgId"]) == (1795177760000, "NEW1")
        assert (oldest["mayBeResent"], newest["mayBeResent"]) == (True, False)
        assert newest["resentTimestamp"] is None
        assert "2026-11-20 12:29:20" in operator.run("listDlq").out.splitlines()[-1]

    def test_says_of_what_nobody_knows_whether_it_was_resent(self, operator: Operator) -> None:
        """Its run was killed between the send and the result."""
        operator.data("resendDlq", "-i", "AB", "--yes")
        audit = operator.directory / "audit"
        audit.write_text(audit.read_text().splitlines(keepends=True)[0])
        _, oldest = operator.data("listDlq")
        assert (oldest["mayBeResent"], oldest["resentTimestamp"]) == (True, None)
        assert " unknown " in operator.run("listDlq").out.splitlines()[-1]
        again = operator.run("resendDlq", "-i", "AB", "--yes")
        assert "this may be the second copy" in again.out

    def test_has_a_limit(self, operator: Operator) -> None:
        assert [row["letterId"] for row in operator.data("listDlq", "-m", "1")] == operator.ids[1:]

    def test_times(self, operator: Operator) -> None:
        early = operator.data("listDlq", "-e", "2026-11-20#12:28:55:000")
        late = operator.data("listDlq", "-b", "1795177735000")
        assert [row["letterId"] for row in early + late] == operator.ids

    def test_a_queue_that_cannot_be_read(self, operator: Operator) -> None:
        operator.stored.refused[DLQ, 0] = (16, "no permission")
        outcome = operator.run("listDlq")
        assert outcome.code == 1
        first, second = outcome.err.splitlines()
        assert first.startswith("mqadmin listDlq: broker-g queue 0: ")
        assert second.endswith("1 queues could not be read: there may be more")

    def test_all_groups(self, operator: Operator, cluster: FakeCluster) -> None:
        assert operator.mqadmin.run_json("listDlq") == [
            {"group": "g", "count": 2, "lastTimestamp": 1795177740000}
        ]
        row = operator.mqadmin.run("listDlq").out.splitlines()[1]
        assert row.split() == ["g", "2", "2026-11-20", "12:29:00"]
        cluster.always(RequestCode.GET_TOPIC_STATS_INFO, 1, "broken")
        outcome = operator.mqadmin.run("listDlq")
        assert outcome.code == 1
        assert outcome.err.endswith("1 of 1 groups could not be read\n")

    def test_hostile_texts_do_not_reach_the_terminal(self, operator: Operator) -> None:
        properties = {"RETRY_TOPIC": "\x1b[2J", "KEYS": "\x1b]0;x\x07\n", "UNIQ_KEY": "\x9b"}
        operator.stored.topic(DLQ, [[Stored(properties)]])
        out = operator.run("listDlq").out
        assert len(out.splitlines()) == 2
        assert out.replace("\n", "").isprintable()


class TestResend:
    def test_all(self, operator: Operator) -> None:
        outcome = operator.run("resendDlq", "-a", "--yes")
        assert (outcome.code, outcome.err) == (0, "")
        heading, first, second, summary = outcome.out.splitlines()
        assert heading.startswith("#Letter ID")
        assert first.split() == [operator.ids[0], "orders", "SEND_OK", "NEW1"]
        assert second.split()[0] == operator.ids[1]
        assert summary == f"2 resent; audit: {operator.directory / 'audit'}"

    def test_data(self, operator: Operator) -> None:
        (step,) = operator.data("resendDlq", "-i", f"{operator.ids[0]}", "--yes")
        assert step == {
            "letterId": operator.ids[0],
            "msgId": "AB",
            "topic": "orders",
            "result": "SEND_OK",
            "reason": None,
            "newMsgId": "NEW1",
        }

    def test_between_times(self, operator: Operator) -> None:
        steps = operator.data("resendDlq", "-b", "1795177735000", "--yes")
        assert [step["letterId"] for step in steps] == operator.ids[1:]

    def test_what_was_not_resent_is_a_failure(self, operator: Operator) -> None:
        operator.stored.answers["orders"] = (12, None)
        outcome = operator.run("resendDlq", "-a", "--yes")
        assert outcome.code == 1
        assert "FLUSH_SLAVE_TIMEOUT" in outcome.out
        assert "2 not resent" in outcome.out
        assert outcome.err == "mqadmin resendDlq: 2 of 2 were not resent\n"

    def test_a_second_time_nothing_is_sent(self, operator: Operator) -> None:
        operator.run("resendDlq", "-a", "--yes")
        outcome = operator.run("resendDlq", "-a", "--yes")
        assert (outcome.code, len(operator.stored.sends())) == (0, 2)
        assert "0 resent, 2 resent before" in outcome.out
        operator.run("resendDlq", "-a", "--again", "--yes")
        assert len(operator.stored.sends()) == 4

    def test_nothing_matches(self, operator: Operator) -> None:
        outcome = operator.run("resendDlq", "-b", "1795177750000", "--yes")
        assert outcome.code == 1
        assert "no such dead letter: nothing was resent" in outcome.err

    def test_an_id_that_is_not_there(self, operator: Operator) -> None:
        outcome = operator.run("resendDlq", "-i", "none,AB", "--yes")
        assert outcome.code == 1
        assert "NOT_FOUND" in outcome.out
        assert outcome.err == "mqadmin resendDlq: 1 of 2 were not resent\n"

    def test_a_rate(self, operator: Operator) -> None:
        operator.mqadmin.rounds = 100
        operator.data("resendDlq", "-a", "-r", "0.5", "--yes")
        (wait,) = operator.mqadmin.waits
        assert 1.5 < wait <= 2

    def test_to_another_topic(self, operator: Operator) -> None:
        operator.stored.topic("parking")
        steps = operator.data("resendDlq", "-a", "-t", "parking", "--yes")
        assert [step["topic"] for step in steps] == ["parking"] * 2

    def test_who_it_was(
        self, operator: Operator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "tools.yml").write_text("accessKey: ops\nsecretKey: secret12\n")
        (tmp_path / "conf" / "tools.yml").chmod(0o600)
        monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
        monkeypatch.setattr("getpass.getuser", lambda: "alice")
        operator.run("resendDlq", "-i", "AB", "--yes")
        lines = (operator.directory / "audit").read_text().splitlines()
        assert [json.loads(line)["who"] for line in lines] == ["alice as ops"] * 2

    @pytest.mark.parametrize(
        "arguments", [[], ["-a", "-i", "AB"], ["-i", "AB", "-b", "1"], ["-i", " , "]]
    )
    def test_which_ones_has_to_be_said(self, operator: Operator, arguments: list[str]) -> None:
        for yes in ([], ["--yes"]):
            outcome = operator.run("resendDlq", *arguments, *yes)
            assert outcome.code == 2
            assert "which? either -i IDS, or -a for all" in outcome.err
        assert operator.stored.sends() == []

    @pytest.mark.parametrize(
        ("arguments", "question"),
        [
            (["-a"], "Send all dead letters of group g again to every group of the topics"),
            (["-i", "A,B"], "Send 2 dead letters of group g again to every group"),
            (["-b", "1"], "Send the dead letters from 1 to now of group g again"),
            (["-e", "9"], "Send the dead letters from the first to 9 of group g again"),
            (["-a", "-t", "x"], "Send all dead letters of group g to topic x?"),
        ],
    )
    def test_asks(
        self,
        operator: Operator,
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        question: str,
    ) -> None:
        not_a_terminal(monkeypatch)
        outcome = operator.run("resendDlq", *arguments)
        assert outcome.code == 1
        assert outcome.err.startswith(f"mqadmin resendDlq: {question}")
        assert operator.stored.sends() == []


class TestExport:
    def test_lines_of_json(self, operator: Operator) -> None:
        path = operator.directory / "letters.jsonl"
        outcome = operator.run("exportDlq", "-f", str(path))
        assert outcome.out == f"2 dead letters of group g written to {path}\n"
        first, second = (json.loads(line) for line in path.read_text().splitlines())
        assert (first["group"], first["originTopic"], first["body"]) == ("g", "orders", "hello")
        assert first["properties"]["KEYS"] == "k"
        assert second["offsetMsgId"] == operator.ids[1]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(operator.directory.glob("*.part")) == []

    def test_bytes_that_are_no_text(self, operator: Operator) -> None:
        operator.stored.topic(DLQ, [[Stored(body=b"\xff\n")]])
        path = operator.directory / "letters.jsonl"
        operator.run("exportDlq", "-f", str(path))
        (line,) = path.read_text().splitlines()
        assert json.loads(line)["bodyBase64"] == "/wo="

    def test_not_all(self, operator: Operator) -> None:
        operator.stored.topic(DLQ, [[Stored()], [Stored()]])
        operator.stored.refused[DLQ, 1] = (16, "no permission")
        path = operator.directory / "letters.jsonl"
        outcome = operator.run("exportDlq", "-f", str(path))
        assert outcome.code == 1
        assert f"{path} has 1 dead letters, but not all: see above" in outcome.err

    def test_what_cannot_be_written(self, operator: Operator) -> None:
        outcome = operator.run("exportDlq", "-f", str(operator.directory / "no" / "x"))
        assert outcome.code == 1
        assert "cannot write " in outcome.err
        assert "No such file or directory" in outcome.err

    def test_a_group_without_dead_letters_leaves_the_old_file(self, operator: Operator) -> None:
        path = operator.directory / "letters.jsonl"
        path.write_text("old")
        del operator.stored.routes[DLQ]
        assert operator.run("exportDlq", "-f", str(path)).code == 1
        assert path.read_text() == "old"
