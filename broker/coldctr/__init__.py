"""Groups that read old messages from the disk are slowed, for the sake of the others (5.x).

Loop thread of `remoting`; one service thread asks the kernel what is in the page cache. Counts
bytes and judges; it sees no connection and no request.
"""
