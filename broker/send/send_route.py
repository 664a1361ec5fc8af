"""SendRoute: the fast path of single sends, beside that of batches (BatchSendRoute).

Runs on the loop thread of `remoting`. Takes the frames of codes 310 and 10, with a JSON or a binary
header, that need nothing but a place in the log: the header is decoded into a typed one, what is
stored and answered is that of the general path byte for byte (SendMessageProcessor). Sends with
JSON headers of code 310 that arrived together are taken together: what is the same for all of them
is looked at once, they are counted once, and their answers leave as one. What is unusual, and
whatever must be refused with words, is left to the general path.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import astuple

from broker.append.send_properties import asks_to_wait, stored_properties
from broker.send.batch_send_route import BatchSendRoute
from broker.send.hot_sends import HotSends
from broker.send.marks import DIVERTED, FIFO, marks_of
from broker.send.placement import Placement
from broker.send.rules import MOST_TEXT, SINGLE
from broker.send.send_answers import SendAnswers
from broker.send.send_header import SendFrame, SendHeader, decode_send_frame, decode_v1_frame
from broker.send.send_topic import HOST_BITS, PeerHost
from broker.send.stored_answer import StoredAnswer
from broker.transaction.young_halves import YoungHalves
from remoting.connection import Buffer, Connection
from remoting.response_code import ResponseCode
from store.errors import StoreError
from store.message_codec import TRANSACTION_MASK
from store.message_properties import PROPERTIES_LIMIT
from store.record import Record

SEND_V1_PREFIX: Final = b'{"code":10,'
SEND_V2_PREFIX: Final = b'{"code":310,'
_KEPT_FLAGS: Final = ~(HOST_BITS | TRANSACTION_MASK)
"""On the fast path only half messages have transaction bits, and they are stored without."""


class SendRoute:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        shared: HotSends,
        batches: BatchSendRoute,
        placement: Placement,
        answers: SendAnswers,
    ) -> None:
        self._log = shared.commit_log
        self._topics = shared.topics
        self._is_open = shared.is_open
        self._waiters = shared.waiters
        self._stats = shared.stats
        self._sends = shared.stats.sends
        self._note_waiting = shared.note_waiting
        self._batches = batches
        self._placement = placement
        self._left = shared.rules.left_marks[SINGLE], shared.rules.left_flags[SINGLE]
        """Marks and flags of messages that are left to the general path."""
        self.young_halves: Final = YoungHalves()
        """The half messages that were stored here."""
        self._cluster_pair = shared.cluster_pair
        self._max_message_size = shared.max_message_size
        self._store_flag = shared.commit_log.store_host_flag
        self._answers = answers
        self._decode_binary = shared.binary_headers.decode

    def process_fast(self, connection: Connection, header: bytes, body: memoryview) -> bool:
        """FastHandler for one frame; False passes it to the general path, which reports what is
        wrong with its header."""
        decode: Callable[[bytes], SendFrame] = decode_send_frame
        if not header.startswith(SEND_V2_PREFIX):
            decode = decode_v1_frame if header.startswith(b"{") else self._decode_binary
        return self._take(connection, [header], [bytes(body)], decode) == 1

    def process_run(self, connection: Connection, headers: list[bytes], bodies: list[bytes]) -> int:
        """RunHandler for frames of code 310."""
        return self._take(connection, headers, bodies, decode_send_frame)

    def process_binary_run(
        self, connection: Connection, headers: list[bytes], bodies: list[bytes]
    ) -> int:
        """The same for those with binary headers."""
        return self._take(connection, headers, bodies, self._decode_binary)

    def _take(
        self,
        connection: Connection,
        headers: list[bytes],
        bodies: list[bytes],
        decode: Callable[[bytes], SendFrame],
    ) -> int:
        """How many were taken; the next one goes the general way. (Each anew: 1.4 us more.)"""
        log, waiters, sends = self._log, self._waiters, self._sends
        if not self._is_open():
            return 0
        peer = connection.state
        if peer.__class__ is not PeerHost:
            peer = PeerHost.of(connection)
        host, added_flags = peer.host, peer.sys_flag | self._store_flag
        topics, cluster_pair = self._topics, self._cluster_pair
        left_marks, left_flags = self._left
        is_binary = decode is self._decode_binary
        # Their methods and not bound ones: these calls stay in C where they are compiled.
        send_answers, placement = self._answers, self._placement
        answers: list[Buffer] = []
        answers_size = taken = messages = messages_size = 0
        name: str
        bits: int
        text: str
        for index, header in enumerate(headers):
            body = bodies[index]
            try:
                frame = decode(header)
            except (msgspec.DecodeError, UnicodeError):
                break
            fields = astuple(frame.extFields)
            _, name, _, _, queue, bits, born_ms, flag, text, times, _, _, is_batch, safety = fields
            if is_batch == "true":
                if not self._batches.take(connection, frame, memoryview(body)):
                    break
                taken += 1
                continue
            if (topic := topics.get(name)) is None or frame.flag or len(text) > MOST_TEXT:
                break
            queue_id = topic.queue_ids.get(queue)
            if safety or (queue_id is None and (queue_id := topic.find_queue_id(queue)) is None):
                break
            marks, kind = marks_of(text), bits & left_flags
            if marks & left_marks:
                break
            entry, stored_in = topic.entry, queue_id
            if kind or marks & DIVERTED:
                place = placement.find_quick(entry.name, queue_id, kind, marks, text)
                if place is None:
                    break
                entry, stored_in, stored, table, counted_as = place
            else:
                stored = stored_properties(text, cluster_pair).encode()
                table, counted_as = sends.fifo if marks & FIFO else sends.normal, name
            if len(body) > self._max_message_size or len(stored) > PROPERTIES_LIMIT:
                break
            sys_flag = bits & _KEPT_FLAGS | added_flags | topic.multi_tags
            try:
                phy_offset, queue_offset = log.put_fields(
                    entry, stored_in, flag, sys_flag, born_ms, host, times, 0, body, stored
                )
            except (StoreError, struct.error):
                break
            taken += 1
            end = log.position
            size = end - phy_offset
            if (counted := table.get(counted_as)) is None:
                counted = table[counted_as] = [0, 0]
            counted[0] += 1
            counted[1] += size
            messages += 1
            messages_size += size
            if table is sends.transactions:
                half = _half(frame.extFields, stored_in, sys_flag, host, body, stored)
                self.young_halves.add(queue_offset, phy_offset, name, queue_id, half)
                self._stats.transactions.stored(queue_offset, name, stored, log.now_ms)
            used, values = send_answers.of(
                text, queue_id, phy_offset, queue_offset, frame.opaque, is_binary
            )
            if waiters.active and asks_to_wait(text):
                waiters.add(end, StoredAnswer(connection, used, values), frame.code)
                self._note_waiting()
            else:
                answer = used.render(values)
                answers.append(answer)
                answers_size += len(answer)
        sends.messages += messages
        sends.size += messages_size
        if answers:
            connection.write_many(answers, answers_size)
            if decode is decode_send_frame:
                sends.answered += len(answers)
            else:
                self._stats.add_answers(frame.code, ResponseCode.SUCCESS, len(answers))
        return taken


def _half(
    header: SendHeader, queue_id: int, sys_flag: int, host: bytes, body: bytes, properties: bytes
) -> Record:
    """A half message as it was stored."""
    return Record(
        queue_id=queue_id,
        flag=header.h,
        sys_flag=sys_flag,
        born_timestamp=header.g,
        born_host=host,
        reconsume_times=header.j,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )
