"""Wing `send`: how a client's message gets into the log: its rules, its place, its answer.

Everything on the loop thread of `remoting`, the log's only writer, but for the rules, which are
pure. Each rule for a message stands once, in rules.py; what the hot loops leave to the general path
is derived from there. Knows no pull, no pop and no table's file.
"""
