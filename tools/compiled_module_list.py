"""Which modules `mqcompile` compiles: the only list of them.

Pure data. Chosen by profiles of sends, pulls and batches: where the time of the loop goes, and what
derives from that. Three kinds of modules must not be here, which tests/tools/test_mqcompile.py
holds:

- one that defines a `msgspec.Struct`: mypyc drops the keywords of such a class and changes its
  annotations, without a word; such a class gets a module of its own;
- one with a class that a module outside derives from: a class that is not compiled cannot;
- one that asks for its own file.
"""

from __future__ import annotations

from typing import Final

COMPILED_MODULES: Final = (
    "broker.append.append_queue",
    "broker.append.diverted_messages",
    "broker.append.durability_waiters",
    "broker.append.role_append_queues",
    "broker.append.send_properties",
    "broker.filter.selector_verdicts",
    "broker.metrics.hot_path_stats",
    "broker.metrics.transaction_metrics",
    "broker.metrics.waiting_halves",
    "broker.pop.ack_message_processor",
    "broker.pop.buffered_pops",
    "broker.pop.check_point",
    "broker.pop.due_check_points",
    "broker.pop.pop_acks",
    "broker.pop.pop_answer",
    "broker.pop.pop_buffer_merge_service",
    "broker.pop.pop_inflight_message_counter",
    "broker.pop.pop_journal",
    "broker.pop.pop_limits",
    "broker.pop.pop_long_polling_service",
    "broker.pop.pop_message_processor",
    "broker.pop.pop_message_reader",
    "broker.pop.pop_queue_check",
    "broker.pop.pop_request",
    "broker.pop.pop_retry_topics",
    "broker.pop.pops",
    "broker.pop.request_clock",
    "broker.pull.known_pulls",
    "broker.pull.pull_answer",
    "broker.pull.pull_message_processor",
    "broker.pull.pull_message_reader",
    "broker.pull.unit_chooser",
    "broker.send.batch_send_route",
    "broker.send.known_binary_headers",
    "broker.send.marks",
    "broker.send.placement",
    "broker.send.rules",
    "broker.send.send_answers",
    "broker.send.send_message_processor",
    "broker.send.send_records",
    "broker.send.send_route",
    "broker.send.send_topic",
    "broker.store_access.checked_units",
    "broker.store_access.durability_follower",
    "broker.store_access.store_follower",
    "broker.store_access.tagged_units",
    "broker.store_access.unit_block",
    "broker.transaction.end_transaction_route",
    "broker.transaction.half_message_states",
    "broker.transaction.young_halves",
    "ha.frame",
    "ha.frame_checksum",
    "ha.lent_link",
    "ha.link_borrower",
    "ha.report_intake",
    "ha.reports",
    "ipc.bell",
    "ipc.queue_table",
    "remoting.connection",
    "remoting.frame",
    "remoting.header_cut",
    "remoting.headers.extra_info_util",
    "remoting.java_text",
    "remoting.key_builder",
    "remoting.loop_watches",
    "remoting.receive_buffer",
    "remoting.remoting_command",
    "remoting.remoting_server",
    "remoting.request_dispatcher",
    "remoting.request_executor",
    "remoting.rocketmq_serializable",
    "remoting.selector_loop",
    "remoting.tls_connection",
    "store.commit_log",
    "store.reserved_properties",
    "store.unit_check",
)
