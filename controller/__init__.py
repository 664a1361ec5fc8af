"""controller: who is the master of each group of brokers.

Its decisions are pure: `core.ControllerCore` takes events and the time, and gives what to swap in
the store and what to send. Around it is one process (bin/mqcontroller): requests, store, notices.
May import `conf` and `remoting`; knows no broker.
"""
