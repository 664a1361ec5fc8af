"""Prints a topic's messages: consumer.py ENDPOINTS TOPIC [COUNT]

ENDPOINTS is where a proxy of RocketMQ 5.x serves gRPC, host:port.
"""

from __future__ import annotations

import queue
import sys
from itertools import count

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    PushConsumer,
)


class Bodies(MessageListener):
    """Hands bodies to the main thread. Called by threads of the client."""

    def __init__(self) -> None:
        self.waiting: queue.Queue[str] = queue.Queue()

    def consume(self, message: Message) -> ConsumeResult:
        self.waiting.put(message.body.decode())
        return ConsumeResult.SUCCESS


def main() -> None:
    endpoints, topic, *most = sys.argv[1:]
    bodies = Bodies()
    consumer = PushConsumer(
        ClientConfiguration(endpoints, Credentials()),
        "example-consumer",
        bodies,
        {topic: FilterExpression("*")},
    )
    consumer.startup()
    print(f"waiting for messages of {topic}", flush=True)
    try:
        for _ in range(int(most[0])) if most else count():
            print(bodies.waiting.get(), flush=True)
    finally:
        consumer.shutdown()


if __name__ == "__main__":
    main()
