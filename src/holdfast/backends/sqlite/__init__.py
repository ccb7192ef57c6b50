"""SQLite, embedded: `sqlite:///relative.db`, `sqlite:////absolute/path.db`."""
