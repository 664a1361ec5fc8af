"""rocketmq-python-client under the command of the tests, with the operations of grpc_drivers.py.

One JSON object a line on stdin, one answer a line on stdout, commands run at the same time. Ends
when stdin does. Run with the client's packages on PYTHONPATH; knows nothing of the tests.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)


class _Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self, resolution: str, checked: list[str]) -> None:
        self._resolution = getattr(TransactionResolution, resolution)
        self._checked = checked

    def check(self, message: Any) -> Any:
        self._checked.append(message.body.decode())
        return self._resolution


class _Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.entries: list[dict[str, Any]] = []

    def consume(self, message: Any) -> Any:
        self.entries.append(_entry(message))
        failed = message.delivery_attempt <= self._failures
        return ConsumeResult.FAILURE if failed else ConsumeResult.SUCCESS


def _entry(message: Any) -> dict[str, Any]:
    return {
        "key": f"{message.message_id}/{message.delivery_attempt}",
        "message_id": message.message_id,
        "body": message.body.decode(),
        "tag": message.tag or None,
        "group": message.message_group or None,
        "attempt": message.delivery_attempt,
        "at_ms": int(time.time() * 1000),
    }


def _message(command: dict[str, Any]) -> Any:
    message = Message()
    message.topic = command["topic"]
    message.body = command["body"].encode()
    if "tag" in command:
        message.tag = command["tag"]
    if "group" in command:
        message.message_group = command["group"]
    if "delay_ms" in command:
        message.delivery_timestamp = int(time.time()) + command["delay_ms"] // 1000
    return message


class GrpcClient:
    """The operations; each is run by a thread of its own."""

    def __init__(self, endpoints: str) -> None:
        self._configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
        self._clients: dict[str, Any] = {}
        self._received: dict[str, Any] = {}
        self._listeners: dict[str, _Listener] = {}
        self._asked: list[str] = []

    def run(self, command: dict[str, Any]) -> Any:
        return getattr(self, f"_{command['op']}")(command)

    def _start(self, command: dict[str, Any], client: Any) -> None:
        client.startup()
        self._clients[command["name"]] = client

    def _producer(self, command: dict[str, Any]) -> None:
        resolution = command.get("resolution")
        checker = _Checker(resolution, self._asked) if resolution else None
        producer = Producer(self._configuration, (command["topic"],), checker)
        self._start(command, producer)

    def _send(self, command: dict[str, Any]) -> dict[str, Any]:
        receipt = self._clients[command["name"]].send(_message(command))
        return {"message_id": receipt.message_id, "recall_handle": receipt.recall_handle or None}

    def _transaction(self, command: dict[str, Any]) -> str:
        producer = self._clients[command["name"]]
        transaction = producer.begin_transaction()
        receipt = producer.send(_message(command), transaction)
        if command["end"] == "COMMIT":
            transaction.commit()
        if command["end"] == "ROLLBACK":
            transaction.rollback()
        return str(receipt.message_id)

    def _recall(self, command: dict[str, Any]) -> str:
        producer = self._clients[command["name"]]
        return str(producer.recall_message(command["topic"], command["handle"]))

    def _checked(self, _command: dict[str, Any]) -> list[str]:
        return list(self._asked)

    def _simple(self, command: dict[str, Any]) -> None:
        consumer = SimpleConsumer(
            self._configuration,
            command["group"],
            {command["topic"]: FilterExpression(command["tag"])},
            command["await_ms"] // 1000,
        )
        self._start(command, consumer)

    def _receive(self, command: dict[str, Any]) -> list[dict[str, Any]]:
        consumer = self._clients[command["name"]]
        found = consumer.receive(command["max"], command["invisible_ms"] // 1000) or []
        entries = [_entry(message) for message in found]
        self._received.update(zip((entry["key"] for entry in entries), found, strict=True))
        return entries

    def _ack(self, command: dict[str, Any]) -> None:
        self._clients[command["name"]].ack(self._received[command["key"]])

    def _change(self, command: dict[str, Any]) -> None:
        message = self._received[command["key"]]
        self._clients[command["name"]].change_invisible_duration(message, command["ms"] // 1000)

    def _push(self, command: dict[str, Any]) -> None:
        listener = self._listeners[command["name"]] = _Listener(command["failures"])
        subscription = {command["topic"]: FilterExpression(command["tag"])}
        self._start(
            command, PushConsumer(self._configuration, command["group"], listener, subscription)
        )

    def _pushed(self, command: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self._listeners[command["name"]].entries)

    def _stop(self, command: dict[str, Any]) -> None:
        self._clients.pop(command["name"]).shutdown()


def _main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    client, writing = GrpcClient(sys.argv[1]), threading.Lock()

    def run(command: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": command["id"]}
        try:
            answer["ok"] = client.run(command)
        except Exception as error:  # noqa: BLE001
            answer["error"] = repr(error)
        with writing:
            answers.write(json.dumps(answer) + "\n")

    pool = ThreadPoolExecutor(16)
    for line in sys.stdin:
        pool.submit(run, json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    _main()
