"""The examples, run as a user runs them, and killed in the middle."""
