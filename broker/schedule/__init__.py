"""Delay levels: messages that become visible later, and how far each level is (delayOffset.json).

Process `remoting`, on the loop. It must not know who sent a message.
"""
