"""The group's other brokers, seen from process `remoting`: a slave's master, a master's slaves.

On a slave: its metadata (SlaveSynchronize), whether its log belongs to its master's, its promotion.
On a master: who the group's brokers are and what they hold. Runs on the scheduled executor and on
a thread that answers process `ha`. It must not know the HA connection itself (room `ha`).
"""
