"""Asks a broker that has the example's code: ask.py BROKER TOPIC, where BROKER is host:port."""

from __future__ import annotations

import sys

from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig

GET_TOPIC_SIZE = 28990
TIMEOUT_MS = 5_000


def main() -> None:
    broker, topic = sys.argv[1:]
    client = RemotingClient(RemotingClientConfig())
    client.start()
    try:
        request = RemotingCommand.request(GET_TOPIC_SIZE, {"topic": topic})
        answer = client.invoke_sync(broker, request, TIMEOUT_MS)
    finally:
        client.shutdown()
    if answer.code != 0:
        sys.exit(f"{broker} answered {answer.code}: {answer.remark}")
    print(answer.ext_fields["messages"])


if __name__ == "__main__":
    main()
