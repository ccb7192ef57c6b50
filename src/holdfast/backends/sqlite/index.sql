-- The index of one log. Parameters are numbered in the order in which entries.py binds them.

-- name: tables
SELECT name FROM sqlite_schema
WHERE type = 'table' AND name IN ('followed', 'vectors', 'sketches', 'words')

-- name: read_position
SELECT model, upto FROM followed WHERE session = ?1

-- name: write_position
INSERT INTO followed (session, model, upto) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET model = excluded.model, upto = excluded.upto

-- name: add_vector
INSERT INTO vectors (place, vector) VALUES (?1, ?2)

-- name: add_sketch
INSERT INTO sketches (place, bits) VALUES (?1, ?2)

-- name: add_word
INSERT INTO words (session, term, seq, weight) VALUES (?1, ?2, ?3, ?4)

-- name: remove_position
DELETE FROM followed WHERE session = ?1 RETURNING 1

-- name: remove_vectors
DELETE FROM vectors WHERE place BETWEEN ?1 AND ?2

-- name: remove_sketches
DELETE FROM sketches WHERE place BETWEEN ?1 AND ?2

-- name: remove_words
DELETE FROM words WHERE session = ?1

-- name: remove_words_of
DELETE FROM words WHERE session = ?1 AND seq = ?2

-- name: cut_words
DELETE FROM words WHERE session = ?1 AND seq <= ?2

-- name: disown
-- From now on it counts as no index, and is still known as something to be removed.
UPDATE followed SET model = '' WHERE session = ?1 RETURNING 1

-- name: sweep_vectors
DELETE FROM vectors WHERE place IN (SELECT place FROM vectors WHERE place BETWEEN ?1 AND ?2 LIMIT ?3)

-- name: sweep_sketches
DELETE FROM sketches WHERE place IN (SELECT place FROM sketches WHERE place BETWEEN ?1 AND ?2 LIMIT ?3)

-- name: sweep_words
DELETE FROM words WHERE session = ?1 AND (term, seq) IN (
    SELECT term, seq FROM words WHERE session = ?1 LIMIT ?2
)

-- name: word_count
SELECT count(*) FROM words WHERE session = ?1 AND term = ?2

-- name: by_words
-- ?2: JSON, pairs of a word and its rarity.
SELECT w.seq, sum(w.weight * (a.value ->> 1)) AS score
FROM json_each(?2) a CROSS JOIN words w ON w.session = ?1 AND w.term = (a.value ->> 0)
GROUP BY w.seq ORDER BY score DESC LIMIT ?3

-- name: near
-- The sketches choose, the vectors decide. ?6: JSON, places that the words have found.
WITH chosen AS (
    SELECT place FROM (
        SELECT place FROM sketches WHERE place BETWEEN ?1 AND ?2
        ORDER BY vec_distance_hamming(vec_bit(bits), vec_bit(?3)) LIMIT ?4
    )
    UNION
    SELECT value FROM json_each(?6)
)
SELECT place & 0xffffffff, coalesce(1 - vec_distance_cosine(vec_int8(vector), vec_int8(?5)), 0) AS near
FROM chosen JOIN vectors USING (place) ORDER BY near DESC
