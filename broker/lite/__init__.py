"""Lite topics (5.5): topics without configuration below one parent, each a light queue.

Who subscribes which of them, what is told of arrivals, how they are popped, acknowledged and ended.
Everything runs on the loop of `remoting` but what says otherwise. Modules are named after
RocketMQ's classes. docs/lite_topics.md says what users see. Must not know requests of other kinds.
"""
