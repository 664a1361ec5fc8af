"""Timers: messages that name the time of their delivery, how they are taken, delivered, recalled.

Process `remoting`. The files of the timers belong to process `store` (store/timer); here they are
read. The package knows no connection and no request code.
"""
