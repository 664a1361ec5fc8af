"""Everything that is stored but the send path's fast way: one line of appends, and what waits for
it.

Process `remoting`, on the loop: records take their place in the log in turn (AppendLine), answers
wait for flush and replicas (DurabilityWaiters). It must not know requests or consumers.
"""
