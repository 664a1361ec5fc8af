"""Users and access control lists of RocketMQ 5 (ACL 2.0): who a peer is, and what it may do.

Used by process `remoting` alone; off unless authenticationEnabled or authorizationEnabled is set.
It knows requests and addresses of peers, not what a request does, nor the store. The access control
of 4.9 (plain_acl.yml) is the wing `acl`.
"""
