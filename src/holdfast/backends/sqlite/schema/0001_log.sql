-- The log: sessions, their messages in order, and the keys that were used.

-- A session's row changes only when its state, floor or expiry does. What changes with
-- every append (its last number, its size) stands in its newest message, so that an append
-- to a session that does not expire dirties one page.
CREATE TABLE sessions (
    id         INTEGER PRIMARY KEY,
    namespace  BLOB NOT NULL,
    name       BLOB NOT NULL,               -- UTF-8, lone surrogates allowed
    floor      INTEGER NOT NULL DEFAULT 0,  -- numbers up to this one are gone for good
    ttl_ms     INTEGER,
    expires_ms INTEGER,                     -- since 1970, by the clock of this machine
    state      TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'expired', 'forgotten')),
    UNIQUE (namespace, name)
) STRICT;

CREATE INDEX sessions_by_expiry ON sessions (expires_ms) WHERE expires_ms IS NOT NULL;

-- One b-tree, clustered by session and number: the newest N of a session are neighbours,
-- however many other sessions were written in between. Above the floor no number is missing.
CREATE TABLE messages (
    place  INTEGER PRIMARY KEY,             -- session id << 32 | number
    total  INTEGER NOT NULL,                -- bytes of all records above the floor up to here
    record BLOB NOT NULL
) STRICT;

CREATE TABLE keys (
    session INTEGER NOT NULL,
    digest  BLOB NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    PRIMARY KEY (session, digest)
) STRICT, WITHOUT ROWID;
