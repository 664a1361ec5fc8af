"""Wing `pull`: how a consumer's request becomes records of a queue, now or when some arrive.

On the loop thread of `remoting`. Reads queues through store_access, holds what must wait in
longpolling, and gives way to the cold and compacted readers. Knows no pop and stores nothing.
"""
