-- Used keys and tombstones are kept for a time (`keys_kept_s`), by the clock of this machine. A tombstone may bear a digest
-- in the place of the session's name (holdfast.tombstones).

-- When a key was used.
ALTER TABLE keys ADD COLUMN used_ms INTEGER;

UPDATE keys SET used_ms = unixepoch() * 1000;

-- Since when a session is forgotten or expired.
ALTER TABLE sessions ADD COLUMN gone_ms INTEGER;

UPDATE sessions SET gone_ms = unixepoch() * 1000 WHERE state <> 'live';

CREATE INDEX sessions_by_end ON sessions (namespace, gone_ms) WHERE gone_ms IS NOT NULL;
