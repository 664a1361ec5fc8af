"""Topics: their configuration (topics.json), RocketMQ's own topics, how a new one is made known.

Process `remoting`; the table is guarded by its lock, new topics are registered by a thread of their
own. It must not know messages.
"""
