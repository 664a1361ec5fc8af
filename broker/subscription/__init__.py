"""Consumer groups as operators configure them (subscriptionGroup.json).

Process `remoting`; guarded by the table's lock. It must not know consumers or their offsets.
"""
