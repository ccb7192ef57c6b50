-- Parameters are numbered in the order in which tables.py binds them.

-- name: read_session
-- A damaged state, of whatever bytes, is NULL.
SELECT id, floor, ttl_ms, expires_ms, CASE WHEN state IN ('live', 'expired', 'forgotten') THEN state END,
    base, cut, cut_total, marks, gone_ms
FROM sessions WHERE namespace = ?1 AND name = ?2

-- name: read_newest
-- Two plain look-ups cost a fifth of one join here.
SELECT place & 0xffffffff, total, coalesce(written_ms, 0) FROM messages
WHERE place > ?1 AND place <= ?2 ORDER BY place DESC LIMIT 1

-- name: add_session
INSERT INTO sessions (namespace, name) VALUES (?1, ?2) RETURNING id

-- name: save_session
UPDATE sessions SET floor = ?2, ttl_ms = ?3, expires_ms = ?4, state = ?5, base = ?6, cut = ?7,
    cut_total = ?8, marks = ?9, gone_ms = ?10
WHERE id = ?1

-- name: rename_session
UPDATE sessions SET name = ?2 WHERE id = ?1

-- name: add_message
-- Repeated for several messages at once, hence no numbers.
INSERT INTO messages (place, total, record, written_ms) VALUES (?, ?, ?, ?)

-- name: remove_messages
DELETE FROM messages WHERE place BETWEEN ?1 AND ?2

-- name: read_total
SELECT total FROM messages WHERE place BETWEEN ?1 AND ?2 ORDER BY place DESC LIMIT 1

-- name: newest
SELECT place & 0xffffffff, record FROM messages
WHERE place > ?1 AND place < ?2 ORDER BY place DESC LIMIT ?3

-- name: oldest
SELECT place & 0xffffffff, record FROM messages
WHERE place > ?1 AND place < ?2 ORDER BY place ASC LIMIT ?3

-- name: picked
SELECT place & 0xffffffff, record FROM messages
WHERE place IN (SELECT value FROM json_each(?1)) ORDER BY place

-- name: replace_message
UPDATE messages SET record = ?2 WHERE place = ?1

-- name: move_totals
UPDATE messages SET total = total + ?3 WHERE place BETWEEN ?1 AND ?2

-- name: read_key
SELECT first, last FROM keys WHERE session = ?1 AND digest = ?2

-- name: add_key
INSERT INTO keys (session, digest, first, last, used_ms) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: drop_old_keys
-- Of the few that come after a digest, hence of any few: those of messages that are gone.
DELETE FROM keys WHERE session = ?1 AND last <= ?3 AND used_ms <= ?4 AND digest IN (
    SELECT digest FROM keys WHERE session = ?1 AND digest > ?2 ORDER BY digest LIMIT ?5
)

-- name: move_keys
INSERT INTO keys (session, digest, first, last, used_ms)
SELECT ?1, digest, first, last, used_ms FROM keys WHERE session = ?2
ON CONFLICT DO UPDATE SET used_ms = max(used_ms, excluded.used_ms)

-- name: remove_keys
DELETE FROM keys WHERE session = ?1

-- name: all_keys
SELECT digest, first, last FROM keys WHERE session = ?1 ORDER BY digest

-- name: names
-- With gone (?6), expired and forgotten sessions as well.
SELECT name FROM sessions
WHERE namespace = ?1 AND name >= ?2 AND name > ?3 AND name < ?4
  AND (?6 OR (state = 'live' AND (expires_ms IS NULL OR expires_ms > ?5)))
ORDER BY name LIMIT ?7

-- name: expired
-- An older release let a load give an expiry to what was forgotten: it must not be called expired.
SELECT namespace, name FROM sessions WHERE expires_ms <= ?1 AND state IN ('live', 'expired') ORDER BY expires_ms LIMIT 1

-- name: long_gone
-- Never the session of the highest id: SQLite would give that id to the next one.
SELECT id FROM sessions WHERE namespace = ?2 AND gone_ms <= ?1 AND state <> 'live' AND expires_ms IS NULL
  AND id < (SELECT max(id) FROM sessions) ORDER BY gone_ms LIMIT 1

-- name: sweep_keys
DELETE FROM keys WHERE session = ?1 AND digest IN (SELECT digest FROM keys WHERE session = ?1 LIMIT ?2)

-- name: remove_session
DELETE FROM sessions WHERE id = ?1

-- name: sweep_messages
DELETE FROM messages WHERE place IN (
    SELECT place FROM messages WHERE place BETWEEN ?1 AND ?2 LIMIT ?3
)
