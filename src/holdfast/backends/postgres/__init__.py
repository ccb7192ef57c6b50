"""PostgreSQL: `postgresql://user:password@host:port/database?schema=holdfast`."""
