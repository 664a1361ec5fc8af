"""Process `remoting`'s way to the store: reading it, asking process `store`, following its
counters.

Readers belong to the thread that uses them; StoreFollower runs on the loop. It must not know
requests.
"""
