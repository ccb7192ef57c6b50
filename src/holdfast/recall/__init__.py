"""Long-term memory: found by meaning and by words, never drifting from the log.

The log is the truth. A memory is a record in it, an index is derived from it and follows it
by number. `steps` has every operation once, as a course that both doors walk.
"""
