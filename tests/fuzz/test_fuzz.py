"""Every target: its corpus and past crashes do nothing any more, and neither do changes of them.

The budget of the changes is FUZZ_SECONDS of the clock for all targets together (15), of a fixed
seed: the same inputs every time, as far as the machine gets. Coverage-guided runs are long ones
(docs/fuzzing.md).
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.broker.hot_path_world import send_request
from tests.broker.route_world import built_controller
from tests.broker.send.test_send_message_processor import batch_body
from tests.fuzz import bad_world, broker_rows, broker_world, namesrv_rows
from tests.fuzz.campaign import has_coverage, run_guided, run_plain
from tests.fuzz.corpus import CORPUS, CRASHES, inputs_of
from tests.fuzz.execution import Execution
from tests.fuzz.mutation import frames_of
from tests.fuzz.served_connection import request
from tests.fuzz.table import MODULES, find_target

SECONDS = float(os.environ.get("FUZZ_SECONDS", "15"))
LONG_SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
MOST_KEPT = 300_000
_ANY_TOPIC = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MODULES)
def test_what_was_found_once_does_nothing_now(name: str) -> None:
    target = find_target(name)
    with Execution(target) as execution:
        for data in inputs_of(target):
            finding = execution.run(data)
            assert finding is None, f"{data!r}: {finding.text}"


@pytest.mark.slow
@pytest.mark.fault(34)
@pytest.mark.timeout(120 + 2 * SECONDS)
@pytest.mark.parametrize("name", MODULES)
def test_changed_inputs_are_answered_or_refused(name: str, proved: Callable[[str], None]) -> None:
    outcome = run_plain(find_target(name), SECONDS / len(MODULES), seed=14)
    assert not outcome.crashes, outcome.crashes
    proved(f"fuzz {name}: {outcome.executions} changed inputs")


@pytest.mark.long
@pytest.mark.timeout(300 + 2 * LONG_SECONDS)
@pytest.mark.parametrize("name", MODULES)
def test_inputs_that_coverage_guides_to(name: str, proved: Callable[[str], None]) -> None:
    run = run_guided if has_coverage() else run_plain
    outcome = run(find_target(name), LONG_SECONDS, seed=time.time_ns() % 2**31)
    assert not outcome.crashes, outcome.crashes
    proved(f"fuzz {name}: {outcome.executions} inputs, {outcome.edges or 'no'} edges")


# -- the table -------------------------------------------------------------------------------------


def test_every_request_code_of_a_broker_has_its_seed(tmp_path: Path) -> None:
    with built_controller(tmp_path) as controller:
        served = set(controller._routes.main)
    seeded = {command.code for data in broker_rows.seeds() for command in frames_of(data)}
    assert served - seeded == set()


def test_every_request_code_of_a_name_server_has_its_seed(tmp_path: Path) -> None:
    world = namesrv_rows.NamesrvWorld(tmp_path)
    served = set(world._server._dispatcher._routes)
    world.close()
    seeds = find_target("namesrv").seeds()
    assert served - {command.code for data in seeds for command in frames_of(data)} == set()
    assert served <= set(RequestCode)


def test_what_is_kept_stays_small_and_belongs_to_a_target() -> None:
    files = [path for root in (CORPUS, CRASHES) for path in root.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_KEPT
    assert {path.parent.name for path in files} <= {*MODULES, "corpus", "crashes"}


# -- the judge: what it has to notice --------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """A process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"fine", None),
        (b"refuse", None),
        (b"raise", "KeyError"),
        (b"log", "OSError"),
        (b"spin", "hang"),
        (b"fill", "memory"),
        (b"collect", "memory"),
        (b"pieces", "memory"),
        (b"stop", "neighbour"),
    ],
)
def test_what_is_a_finding(data: bytes, key: str | None, elsewhere: ProcessPoolExecutor) -> None:
    found, next_found = elsewhere.submit(bad_world.judged, data).result()
    assert (found and found.partition(" ")[0].rstrip(":")) == key
    assert next_found is None, "the next input has a new world"


@pytest.mark.skipif(not has_coverage(), reason="atheris is not installed (pip install '.[fuzz]')")
def test_a_guided_run_counts_edges() -> None:
    outcome = run_guided(find_target("ha-hello"), 2, seed=1)
    assert not outcome.crashes
    assert outcome.executions > 100
    assert (outcome.edges or 0) > 10


@pytest.mark.parametrize("access", broker_world.Access)
def test_what_an_operator_may_do_to_the_neighbours_topic_is_no_finding(
    tmp_path: Path, access: broker_world.Access
) -> None:
    world = broker_world.BrokerWorld(tmp_path, access=access)
    changes = {
        RequestCode.UPDATE_AND_CREATE_TOPIC: {"readQueueNums": 1, "writeQueueNums": 1, "perm": 0},
        RequestCode.DELETE_TOPIC_IN_BROKER: {},
    }
    for code, fields in changes.items():
        for number in range(8):  # some of them from elsewhere, some signed by an operator
            named = {**_ANY_TOPIC, **fields, "topic": broker_world.BYSTANDER, "x": "x" * number}
            world.run(request(code, named))
            world.check()
    world.close()


def _send(queue_id: int = 0, **options: Any) -> RemotingCommand:
    return send_request(topic=broker_world.BYSTANDER, queue_id=queue_id, properties="", **options)


@pytest.mark.parametrize("access", [broker_world.Access.OPEN, broker_world.Access.SIGNED])
def test_what_others_send_to_the_neighbours_topic_is_no_finding(
    tmp_path: Path, access: broker_world.Access
) -> None:
    """They may; and however they send, the next message of the neighbour is behind theirs."""
    world = broker_world.BrokerWorld(tmp_path, access=access)
    one, elsewhere, oneway = _send(), _send(queue_id=1), _send(oneway=True)
    three = batch_body(*[(0, b"a message", b"")] * 3)
    batch = _send(code=RequestCode.SEND_BATCH_MESSAGE, batch="true", body=three)
    no_frame = b"\x00\x00\x00\x01"
    for data, ends_at in (
        (encode_command(one), 3),
        (b"".join(map(encode_command, (elsewhere, one, one))), 6),
        (encode_command(oneway), 8),
        (encode_command(batch), 12),
        (encode_command(one) + no_frame, 14),
    ):
        world.run(data)
        world.check()
        assert world._next_offset == ends_at
    world.close()


@pytest.mark.parametrize("told", [b"", encode_command(_send()), encode_command(_send(queue_id=1))])
def test_what_nobody_was_told_of_is_a_finding(tmp_path: Path, told: bytes) -> None:
    """A message in the neighbour's queue that no answer to the fuzzer tells of."""
    world = broker_world.BrokerWorld(tmp_path)
    world.run(told)
    world.check()
    world.run(told)
    world.connect().feed(encode_command(_send()))
    with pytest.raises(AssertionError, match="queue offset"):
        world.check()
    world.close()


def test_an_offset_that_goes_back_is_a_finding(tmp_path: Path) -> None:
    """Even where the fuzzer's messages may be anywhere, for they were oneway."""
    world = broker_world.BrokerWorld(tmp_path)
    world.run(encode_command(_send(oneway=True)))
    world._next_offset += 3
    with pytest.raises(AssertionError, match="queue offset"):
        world.check()
    world.close()
