"""What the broker counts and how it is shown: slots, statistics, /metrics, /readyz, metrics dumps.

Every process counts in its own region of shared slots; the supervisor collects, serves and dumps.
RocketMQ's own statistics (BrokerStatsManager, StoreStatsService) live in process `remoting`. It
must not know how a message is handled.
"""
