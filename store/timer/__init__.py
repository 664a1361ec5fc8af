"""Timers: the files that say which message of the timer topic is due when.

Process `store` is their only writer; `remoting` reads them through TimerWheelReader and
TimerLogReader and delivers. What both must know of each other is in timer_slots.py. The package
knows no delivery, no request and no settings but its own.
"""
