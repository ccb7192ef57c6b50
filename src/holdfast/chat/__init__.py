"""A chat page over the store, where a person can watch memory survive."""
