"""How process `remoting` is put together: BrokerController's parts, each built here.

Runs once, on the main thread, before the loop turns. Policy belongs to the wings; nothing but
BrokerController imports this one.
"""
