"""What the broker's processes share: memory, wake-ups, small requests, and how a service runs.

The supervisor makes the shared memory (control page, queue table, metric slots) and the channels;
every child inherits their descriptors. What a slot, a metric or a command means is registered by
the room that owns it. This room must not know the log, its files, replication or the protocol.
"""
