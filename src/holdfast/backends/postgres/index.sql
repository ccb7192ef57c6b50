-- The index of one log. What requests.py puts in is the same as in queries.sql.

-- name: read_numbers
SELECT m.seq, m.record FROM {schema}.sessions s JOIN {schema}.messages m ON m.session = s.id
WHERE s.namespace = {namespace} AND s.name = %b AND s.state = 'live'
  AND (s.expires_ms IS NULL OR s.expires_ms > {schema}.ms(now()))
  AND m.seq > s.floor AND m.seq = ANY (%b::bigint[])
ORDER BY m.seq

-- name: derive
SELECT * FROM {schema}.derive({namespace}, %b, {terms}, {numbers_max}, %b, %b::bigint, %b, %b)

-- name: position
SELECT f.model, f.upto, s.floor FROM {schema}.sessions s
JOIN {schema}.followed f ON f.session = s.id AND f.floor = s.floor
WHERE s.namespace = {namespace} AND s.name = %b AND s.state = 'live'
  AND (s.expires_ms IS NULL OR s.expires_ms > {schema}.ms(now()))

-- name: extend
SELECT * FROM {schema}.extend(
    {namespace}, %b, {terms}, %s, %b::bigint, %b::bigint, %b::bigint, %b,
    %b::bigint[], %s::text[], %b::bytea[], %b::bigint[], %b::bigint[], %b::float8[])

-- name: worded
-- What each search begins with: the log, and of it the records with the words. The rarest words until
-- they stand in too many records, at least one.
WITH s AS MATERIALIZED (
    SELECT s.id, s.last - s.floor AS count FROM {schema}.sessions s
    JOIN {schema}.followed f ON f.session = s.id AND f.floor = s.floor AND f.model = %s
    WHERE s.namespace = {namespace} AND s.name = %b AND s.state = 'live'
      AND (s.expires_ms IS NULL OR s.expires_ms > {schema}.ms(now()))
), counts AS (
    SELECT w.term, count(*) AS n FROM s JOIN {schema}.words w ON w.session = s.id
    WHERE w.term = ANY (%b::bigint[]) GROUP BY w.term
), ordered AS (
    SELECT term, n, sum(n) OVER (ORDER BY n, term) AS spent, row_number() OVER (ORDER BY n, term) AS place
    FROM counts
), chosen AS (
    SELECT o.term, ln(1 + (s.count - o.n + 0.5) / (o.n + 0.5)) AS rarity FROM s, ordered o
    WHERE o.spent <= {postings_max} OR o.place = 1
), worded AS MATERIALIZED (
    SELECT w.seq, sum(w.weight * c.rarity)::float8 AS score
    FROM s CROSS JOIN chosen c JOIN {schema}.words w ON w.session = s.id AND w.term = c.term
    GROUP BY w.seq ORDER BY score DESC LIMIT %b::bigint
)

-- name: search
-- The records whose sketches are nearest. The vectors are compared by the client.
{worded}, near AS MATERIALIZED (
    SELECT e.seq FROM s JOIN {schema}.entries e ON e.session = s.id
    ORDER BY bit_count(e.sketch # (%s::text)::bit varying) LIMIT %b::bigint
)
SELECT e.seq, e.vector, coalesce(w.score, 0)
FROM s JOIN {schema}.entries e ON e.session = s.id
    AND e.seq IN (SELECT seq FROM near UNION SELECT seq FROM worded)
LEFT JOIN worded w ON w.seq = e.seq

-- name: search_near
-- All vectors are compared by pgvector. One row says whether it has all of them: number 0. It has, if
-- its last is the last of the log, and what is written to `entries` is written to it.
{worded}, kept AS MATERIALIZED (
    SELECT s.id, (SELECT max(e.seq) FROM {schema}.entries e WHERE e.session = s.id)
        IS NOT DISTINCT FROM (SELECT max(n.seq) FROM {schema}.near n WHERE n.session = s.id)
        AND EXISTS (SELECT FROM pg_trigger t
                    WHERE t.tgrelid = to_regclass('{schema}.entries') AND t.tgname = 'near_added') AS whole
    FROM s
), asked AS MATERIALIZED (
    SELECT (%s::text)::{vector}.halfvec AS near
), nearest AS MATERIALIZED (
    SELECT n.seq FROM kept k JOIN {schema}.near n ON n.session = k.id, asked a
    WHERE k.whole ORDER BY n.near OPERATOR({vector}.<=>) a.near, n.seq DESC LIMIT %b::bigint
)
SELECT 0::bigint, k.whole::int::float8, 0::float8 FROM kept k
UNION ALL
SELECT n.seq, 1 - (n.near OPERATOR({vector}.<=>) a.near), coalesce(w.score, 0)
FROM asked a, kept k JOIN {schema}.near n ON n.session = k.id
    AND n.seq IN (SELECT seq FROM nearest UNION SELECT seq FROM worded)
LEFT JOIN worded w ON w.seq = n.seq
WHERE k.whole

-- name: fill_near
SELECT {schema}.follow_near({namespace}, %b, {near_lock_timeout_ms}, {near_batch})
