"""The kit: holds any memory store to the promises, on real engines, under real faults."""
