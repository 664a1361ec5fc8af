"""Access control: accounts, signatures, permissions, and the table of request codes.

Used by process `remoting` alone. It knows requests (codes, extFields, a few bodies) and addresses
of peers; it must not know what a request does, nor any manager or the store.
"""
