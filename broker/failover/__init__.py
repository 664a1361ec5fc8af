"""failover: what a broker does as a member of a group that a controller leads.

The decisions are pure: `member.MemberCore` takes events, the time and the log's ends, and gives
what to write, which role to take and what to send. Around them `member_parts.build_member` makes
the member's thread, its requests to controllers and its files. What the log, the HA link and the
name servers are this wing does not know (`member_service.MemberHost`); `bin/mqbroker` has none of
that yet and starts no member (docs/failover.md).
"""
