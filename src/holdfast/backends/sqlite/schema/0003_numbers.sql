-- Numbers stay inside their session, whoever writes them: a load of a file from a stranger, too.
-- place is session id << 32 | number, so a number out of its range would be a message of another one.

-- What such a load, or one of a backup that had expired, may have left: dead sessions with messages,
-- messages of sessions that are not there yet, and numbers that reach over others.
UPDATE sessions SET floor = min(max(floor, 0), 4294967295) WHERE floor NOT BETWEEN 0 AND 4294967295;

UPDATE sessions SET floor = max(floor, coalesce((
    SELECT max(place) & 0xffffffff FROM messages
    WHERE place BETWEEN sessions.id << 32 AND sessions.id << 32 | 0xffffffff
), 0)) WHERE state <> 'live';

DELETE FROM messages WHERE place IN (
    SELECT m.place FROM sessions s
    JOIN messages m ON m.place BETWEEN s.id << 32 AND s.id << 32 | 0xffffffff
    WHERE s.state <> 'live'
);

DELETE FROM messages WHERE place >= (SELECT (coalesce(max(id), 0) + 1) << 32 FROM sessions);

-- SQLite adds no CHECK to a table that is there.
CREATE TABLE new_sessions (
    id         INTEGER PRIMARY KEY,
    namespace  BLOB NOT NULL,
    name       BLOB NOT NULL,               -- UTF-8, lone surrogates allowed
    floor      INTEGER NOT NULL DEFAULT 0   -- numbers up to this one are gone for good
               CHECK (floor BETWEEN 0 AND 4294967295),
    ttl_ms     INTEGER CHECK (ttl_ms BETWEEN 1 AND 3162240000000),
    expires_ms INTEGER                      -- since 1970, by the clock of this machine
               CHECK (expires_ms BETWEEN 0 AND 253402300799999),
    state      TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'expired', 'forgotten')),
    UNIQUE (namespace, name)
) STRICT;

INSERT INTO new_sessions (id, namespace, name, floor, ttl_ms, expires_ms, state)
SELECT id, namespace, name, floor, min(max(ttl_ms, 1), 3162240000000),
       min(max(expires_ms, 0), 253402300799999), state FROM sessions;

DROP TABLE sessions;

ALTER TABLE new_sessions RENAME TO sessions;

CREATE INDEX sessions_by_expiry ON sessions (expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE new_keys (
    session INTEGER NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 16),
    first   INTEGER NOT NULL CHECK (first >= 1),
    last    INTEGER NOT NULL CHECK (last BETWEEN first AND 4294967295),
    PRIMARY KEY (session, digest)
) STRICT, WITHOUT ROWID;

INSERT INTO new_keys (session, digest, first, last)
SELECT session, digest, first, last FROM keys
WHERE length(digest) = 16 AND first >= 1 AND last BETWEEN first AND 4294967295;

DROP TABLE keys;

ALTER TABLE new_keys RENAME TO keys;

-- Above the floor no number is missing. A trigger, because a CHECK would copy every message that is
-- there, and cannot look at another row.
CREATE TRIGGER messages_follow_on BEFORE INSERT ON messages
WHEN NEW.place & 0xffffffff = 0 OR (
    NOT EXISTS (SELECT 1 FROM messages WHERE place = NEW.place - 1)
    AND NOT EXISTS (
        SELECT 1 FROM sessions
        WHERE id = NEW.place >> 32 AND floor = (NEW.place & 0xffffffff) - 1
    )
)
BEGIN
    SELECT RAISE(ABORT, 'a message that does not follow on');
END;
