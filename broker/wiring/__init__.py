"""How process `remoting` is put together: BrokerController's parts, each built here.

Runs once, on the main thread, before the loop turns. Policy belongs to the wings; this one is
imported by BrokerController and by broker/processes/remoting.py only.
"""
