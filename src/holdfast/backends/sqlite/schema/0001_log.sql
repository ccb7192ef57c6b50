-- The log: sessions, their messages in order, and the keys that were used.

CREATE TABLE sessions (
    id         INTEGER PRIMARY KEY,
    namespace  BLOB NOT NULL,
    name       BLOB NOT NULL,      -- UTF-8, lone surrogates allowed
    last       INTEGER NOT NULL,   -- the last number given; it never goes back
    floor      INTEGER NOT NULL,   -- numbers up to this one are gone for good
    count      INTEGER NOT NULL,   -- visible messages, and the bytes of their records
    bytes      INTEGER NOT NULL,
    ttl_ms     INTEGER,
    expires_ms INTEGER,            -- since 1970, by the clock of this machine
    state      TEXT NOT NULL CHECK (state IN ('live', 'expired', 'forgotten')),
    UNIQUE (namespace, name)
) STRICT;

CREATE INDEX sessions_by_expiry ON sessions (expires_ms) WHERE expires_ms IS NOT NULL;

-- One b-tree, clustered by session and number: the newest N of a session are neighbours,
-- however many other sessions were written in between.
CREATE TABLE messages (
    place  INTEGER PRIMARY KEY,    -- session id << 32 | number
    record BLOB NOT NULL
) STRICT;

CREATE TABLE keys (
    session INTEGER NOT NULL,
    digest  BLOB NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    PRIMARY KEY (session, digest)
) STRICT, WITHOUT ROWID;
