-- An append may cut off old messages: those from base + 1 to cut, if cut is the floor. A floor that has
-- moved since (a rewrite, a forget, an expiry) was moved by something else.
ALTER TABLE sessions ADD COLUMN base INTEGER NOT NULL DEFAULT 0;

ALTER TABLE sessions ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;

-- The total of the message at the cut: what comes after it counts on from there.
ALTER TABLE sessions ADD COLUMN cut_total INTEGER NOT NULL DEFAULT 0;

-- When a message was written, by the clock of this machine; NULL: by an earlier release.
ALTER TABLE messages ADD COLUMN written_ms INTEGER;

-- Which messages were written by when, for an age; see commands.Keep.
ALTER TABLE sessions ADD COLUMN marks BLOB NOT NULL DEFAULT x'';
