"""failover: what a broker does as a member of a group that a controller leads, by pure functions.

No socket, clock or file: `member.MemberCore` takes events, the time and the log's ends, and gives
what to write, which role to take and what to send. Imports no other wing. Nothing of the product
runs it yet (docs/failover.md).
"""
