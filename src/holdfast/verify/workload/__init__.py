"""The workload: seeded operations, made by client processes, recorded while they happen."""
