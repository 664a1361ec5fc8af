"""Refusing early what would wait too long (RocketMQ's package of this name: BrokerFastFailure).

Process `remoting`, on the loop. It must not know what is sent.
"""
