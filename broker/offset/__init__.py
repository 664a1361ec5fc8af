"""How far consumer groups are (consumerOffset.json).

Process `remoting`; guarded by the tables' own locks. It must not know who consumes.
"""
