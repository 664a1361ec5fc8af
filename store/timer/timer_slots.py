"""The slots of the control page through which process `store` and the delivery follow each other.

Constants only; any process. Each slot has one writer.

    slot  writer    meaning
    120   store     TIMER_OPENED: 0 while wheel and log are not to be read (recovery; in controller
                    mode while another broker leads), else 1
    121   store     TIMER_WRITE_TIME_MS: first open slot of the wheel, a multiple of the precision
    122   store     TIMER_COMMIT_QUEUE_OFFSET: units of the timer topic before it are in the wheel
    123   store     TIMER_START_TIME_MS: read time of the last check point, where a delivery begins
                    that finds TIMER_READ_TIME_MS 0
    124   remoting  TIMER_READ_TIME_MS: every slot before it is delivered and on disk; on a slave
                    the master's lastReadTimeMs
    125   remoting  TIMER_MASTER_QUEUE_OFFSET: on a slave the master's; its units behind stay out
    126   remoting  TIMER_TAKEN_BACK_MS: slots before it were delivered by a slave in its master's
                    place: on that slave (broker/timer/timer_escape_service.py), and on the master
                    that took it back (broker/slave/timer_take_back.py); 0: none was
    127   remoting  TIMER_STOP_ENQUEUE: 1 while nothing is to be entered (timerStopEnqueue)

The rules of the game, for W = TIMER_WRITE_TIME_MS and R = TIMER_READ_TIME_MS:

* `store` changes slots >= W only. The delivery takes all that is left of slots < W, R <= W: these
  never change, and W > slot says that the slot's end has come by the wall clock.
* To a slot >= W `store` only adds: units are written before the slot's last position, and what is
  there stays. Of these the delivery may take messages whose own ms has come (broker/timer/
  open_slots.py); it remembers them by their records, as units may be written anew, and skips them
  when the slot is < W. R does not know them.
* A record is entered before TIMER_COMMIT_QUEUE_OFFSET passes it: what was put before a slot began
  is in the wheel when that has passed the timer topic's end of then.
* W grows to the precision's last multiple before now, when every record that the log held at that
  time is dispatched and entered. A record that comes later still ("late": its slot is < W) is
  entered into slot W: it is delivered one precision later and never lost.
* When the wall clock was set back by more than STEP_BACK_MS behind W, `store` enters nothing until
  R = W: all closed slots are delivered. It then empties the slots from the new time to W (they are
  delivered, and would be again) and publishes the smaller W. The delivery takes R = W as soon as it
  finds W < R; until it has, `store` leaves W alone.
* Slots before R are never cleared (as in RocketMQ): they are past.
* In controller mode a follower adds to slots < W, too, as there is no delivery. TIMER_OPENED is 0
  then. `store` sets it to 0 before it looks whether it is to follow, the delivery looks at it after
  the order to lead: either `store` sees that order, or the delivery finds 0 until W = R again.
"""

from __future__ import annotations

from typing import Final

from ipc.control_page import claim_slots

TIMER_OPENED: Final = claim_slots("timer_opened", 120)
TIMER_WRITE_TIME_MS: Final = claim_slots("timer_write_time_ms", 121)
TIMER_COMMIT_QUEUE_OFFSET: Final = claim_slots("timer_commit_queue_offset", 122)
TIMER_START_TIME_MS: Final = claim_slots("timer_start_time_ms", 123)
TIMER_READ_TIME_MS: Final = claim_slots("timer_read_time_ms", 124)
TIMER_MASTER_QUEUE_OFFSET: Final = claim_slots("timer_master_queue_offset", 125)
TIMER_TAKEN_BACK_MS: Final = claim_slots("timer_taken_back_ms", 126)
TIMER_STOP_ENQUEUE: Final = claim_slots("timer_stop_enqueue", 127)

STEP_BACK_MS: Final = 2_000
