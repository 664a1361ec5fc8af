"""Request processors of the broker: one module per subject, each a table code -> bound method.

A processor has no state of its own; it reads and changes the managers passed to it. Most run in
thread pools, the light ones on the loop's thread: each module's docstring says which.
"""
