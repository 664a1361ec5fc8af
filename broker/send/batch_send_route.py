"""BatchSendRoute: the fast path of batches, beside that of single sends in SendMessageProcessor.

Runs on the loop thread of `remoting`. The body of a frame of code 320, or of a 310 or 10 with
m=true, becomes records straight from the receive buffer (CommitLog.put_sent_batch). Taken is what
the general path would store without a change but the common properties, also when its messages have
lost their reserved properties first (`admitted_batch`); everything else, and whatever must be
refused with words, goes there. What is stored and answered is the same byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from broker.append.admitted_properties import admitted_batch
from broker.append.send_properties import asks_to_wait, common_properties
from broker.send.hot_sends import HotSends
from broker.send.marks import FIFO, marks_of, marks_of_items
from broker.send.rules import BATCH, BATCH_GROWTH, ITEM
from broker.send.send_answers import SendAnswers
from broker.send.send_header import BinarySendFrame, SendFrame, decode_batch_frame
from broker.send.send_topic import HOST_BITS, PeerHost
from broker.send.stored_answer import StoredAnswer
from remoting.connection import Connection
from remoting.response_code import ResponseCode
from store.batch_records import BatchCommon
from store.message_properties import PROPERTIES_LIMIT

SEND_BATCH_PREFIX: Final = b'{"code":320,'
_PHY_OFFSET_SIZE: Final = 8
"""The flag of a batch is not stored, but checked."""


class BatchSendRoute:
    """See the module. Owned by: the remoting loop thread."""

    def __init__(self, shared: HotSends, answers: SendAnswers) -> None:
        """answers: msgId is given as bytes, the ids of all messages."""
        self._log = log = shared.commit_log
        self._topics = shared.topics
        self._is_open = shared.is_open
        self._waiters = shared.waiters
        self._stats = shared.stats
        self._sends = shared.stats.sends
        self._note_waiting = shared.note_waiting
        self._cluster_pair = shared.cluster_pair
        self._max_message_size = shared.max_message_size
        self._store_flag = log.store_host_flag
        self._host_hex = log.store_host.hex().upper()
        self._answers = answers
        self._decode_binary = shared.binary_headers.decode
        self._left_marks = shared.rules.left_marks[BATCH]
        self._left_flags = shared.rules.left_flags[BATCH]
        self._left_items = shared.rules.left_marks[ITEM]

    def process_fast(self, connection: Connection, header: bytes, body: memoryview) -> bool:
        """FastHandler for frames of code 320 with a JSON or a binary header; False passes the frame
        to SendMessageProcessor.process_request."""
        try:
            is_json = header.startswith(SEND_BATCH_PREFIX)
            frame = decode_batch_frame(header) if is_json else self._decode_binary(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        return frame.extFields.is_batch and self.take(connection, frame, body)

    def take(self, connection: Connection, frame: SendFrame, body: memoryview) -> bool:
        """Store and answer a batch (m=true) of any send code; False: nothing has happened."""
        fields = frame.extFields
        topic = self._topics.get(fields.b)
        if topic is None or topic.nature.batch_queues or frame.flag:
            return False
        if fields.f & self._left_flags or fields.reportDurability:
            return False
        queue_id = topic.queue_ids.get(fields.e)
        if queue_id is None:
            queue_id = topic.find_queue_id(fields.e)
            if queue_id is None:
                return False
        text = fields.i
        if len(text) > PROPERTIES_LIMIT:
            return False
        if (marks := marks_of(text)) & self._left_marks:
            return False
        if len(body) > self._max_message_size or not self._is_open():
            return False
        peer = PeerHost.of(connection)
        first_offset = topic.entry.next_offsets.get(queue_id, 0)
        before = self._log.position
        common = BatchCommon(
            queue_id=queue_id,
            sys_flag=fields.f & ~HOST_BITS | peer.sys_flag | self._store_flag | topic.multi_tags,
            born_timestamp=fields.g,
            born_host=peer.host,
            reconsume_times=fields.j,
            topic=topic.entry.name_bytes,
            properties=common_properties(text, self._cluster_pair).encode(),
        )
        most = BATCH_GROWTH * self._max_message_size
        phy_offsets = self._log.put_sent_batch(topic.entry, common, body, most, self._are_plain)
        if phy_offsets is None:
            admitted = admitted_batch(body)
            if admitted is not None:
                whole = memoryview(admitted)
                phy_offsets = self._log.put_sent_batch(
                    topic.entry, common, whole, most, self._are_plain
                )
            if phy_offsets is None:
                return False
        sends = self._sends
        table = sends.fifo if marks & FIFO else sends.normal
        sends.add(table, fields.b, len(phy_offsets), self._log.position - before)
        ids = self._message_ids(phy_offsets)
        is_binary = frame.__class__ is BinarySendFrame
        template, values = self._answers.of(
            text, queue_id, ids, first_offset, frame.opaque, is_binary
        )
        if self._waiters.active and asks_to_wait(text):
            answer = StoredAnswer(connection, template, values)
            self._waiters.add(self._log.position, answer, frame.code)
            self._note_waiting()
            return True
        self._stats.add_answers(frame.code, ResponseCode.SUCCESS)
        connection.write(template.render(values))
        return True

    def _are_plain(self, joined: bytes, texts: Sequence[bytes]) -> bool:
        """Whether no rule looks at any of these messages, of whose properties `joined` consists."""
        return not marks_of_items(joined, texts) & self._left_items

    def _message_ids(self, phy_offsets: Sequence[int]) -> bytes:
        """offsetMsgId of each, joined by commas: 2 us for 16, a format for each takes 5."""
        packed = struct.pack(f">{len(phy_offsets)}q", *phy_offsets)
        digits = packed.hex(",", _PHY_OFFSET_SIZE).upper()
        return (self._host_hex + digits.replace(",", "," + self._host_hex)).encode()
