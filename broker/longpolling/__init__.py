"""Pulls that wait for messages.

Process `remoting`, on the loop, the only owner of what is held. It must not know how a pull is
answered; the processor is told which one to try again.
"""
