"""Who is connected: producers, consumers, their channels, queue locks, and calls to clients.

Process `remoting`; tables guarded by locks of their own, housekeeping on the scheduled executor. It
must not know the store.
"""
