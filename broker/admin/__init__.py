"""Wing `admin`: what mqadmin and the console's kind of tools ask of a broker.

One processor a subject (topics, groups, offsets, accounts, runtime, HA), each a table code -> bound
method over the managers of the other wings; a processor has no state of its own. Most run in the
`admin` pool: each module's docstring says which.
"""
