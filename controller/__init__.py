"""controller: who is the master of each group of brokers, decided by pure functions.

No socket, clock or file: `core.ControllerCore` takes events and the time, and gives what to swap in
the store and what to send. May import `remoting` for the codes only. Nothing of the product runs it
yet (docs/failover.md).
"""
