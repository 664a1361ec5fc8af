"""Sends each text as a message: producer.py ENDPOINTS TOPIC TEXT...

ENDPOINTS is where a proxy of RocketMQ 5.x serves gRPC, host:port.
"""

from __future__ import annotations

import sys

from rocketmq import ClientConfiguration, Credentials, Message, Producer


def main() -> None:
    endpoints, topic, *texts = sys.argv[1:]
    producer = Producer(ClientConfiguration(endpoints, Credentials()), (topic,))
    producer.startup()
    try:
        for text in texts:
            message = Message()
            message.topic = topic
            message.body = text.encode()
            message.tag = "TagA"
            print(producer.send(message).message_id)
    finally:
        producer.shutdown()


if __name__ == "__main__":
    main()
