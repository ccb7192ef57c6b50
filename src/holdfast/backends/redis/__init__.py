"""Redis 6.2 to 8 and Valkey: `redis://host:6379/0`; see `address.py` for the other URLs."""
