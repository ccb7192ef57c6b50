"""Long-term memory: found by meaning and by words, never drifting from the log.

The log is the truth. A memory is a record in it, an index is derived from it
by number. `memory_operations` and `prompt_operations` have every operation once, as steps that
the runner carries out.
"""
