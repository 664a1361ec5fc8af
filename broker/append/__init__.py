"""Everything stored beside the fast path of sends: the append queue, and waiting for durability.

Process `remoting`, on the loop: records take their place in the log in turn (AppendQueue), answers
wait for flush and replicas (DurabilityWaiters). It must not know requests or consumers.
"""
