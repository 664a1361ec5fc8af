"""A member of a consumer group, for pages that ask the members themselves (307)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from remoting.body.consumer_running_info import ConsumerRunningInfo
from remoting.body.heartbeat import ConsumerData, HeartbeatData
from remoting.remoting_command import RemotingCommand
from tests.remoting.test_remoting_server import Peer

_HEARTBEAT_S = 20.0


@contextmanager
def online(
    port: int, client_id: str, data: ConsumerData, info: ConsumerRunningInfo
) -> Iterator[None]:
    """It answers what it is asked with `info`; its stack only who asks for that."""
    peer = Peer(("127.0.0.1", port))
    peer.sock.settimeout(_HEARTBEAT_S)
    body = HeartbeatData(client_id=client_id, consumer_data_set=[data]).to_json_bytes()
    thread = threading.Thread(target=_serve, args=(peer, body, info), daemon=True)
    thread.start()
    try:
        yield
    finally:
        peer.sock.shutdown(socket.SHUT_RDWR)
        thread.join(_HEARTBEAT_S)
        peer.sock.close()


def _serve(peer: Peer, heartbeat: bytes, info: ConsumerRunningInfo) -> None:
    peer.send(RemotingCommand.request(34, {}, heartbeat))
    while True:
        try:
            asked = peer.receive()
        except TimeoutError:
            peer.send(RemotingCommand.request(34, {}, heartbeat))
            continue
        except (OSError, EOFError):
            return
        if not asked.is_response and asked.code == 307:
            peer.send(asked.response(0, None, None, _told(asked, info)))


def _told(asked: RemotingCommand, info: ConsumerRunningInfo) -> bytes:
    wants_stack = (asked.ext_fields or {}).get("jstackEnable") == "true"
    jstack = info.jstack if wants_stack else None
    told = ConsumerRunningInfo(
        properties=info.properties,
        subscription_set=info.subscription_set,
        mq_table=info.mq_table,
        status_table=info.status_table,
        jstack=jstack,
    )
    return told.to_json_bytes()
