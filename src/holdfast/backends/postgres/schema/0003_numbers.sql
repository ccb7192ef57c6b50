-- Numbers that no session can have are refused by the tables, whoever writes them: a load of a file
-- from a stranger, too. What is loaded after its time is over does not come back.

-- What such a load may have left.
DELETE FROM {schema}.messages m USING {schema}.sessions s
WHERE m.session = s.id AND m.seq > s.floor AND (
    s.last > 4294967295 AND m.seq > 4294967295 OR s.state <> 'live' AND s.floor <> s.last);

UPDATE {schema}.sessions SET
    last = least(greatest(last, 0), 4294967295),
    floor = least(greatest(CASE WHEN state = 'live' THEN floor ELSE last END, 0), greatest(last, 0), 4294967295),
    bytes = CASE WHEN state = 'live' THEN greatest(bytes, 0) ELSE 0 END,
    ttl_ms = CASE WHEN ttl_ms IS NOT NULL THEN least(greatest(ttl_ms, 1), 3162240000000) END,
    expires_ms = CASE WHEN expires_ms IS NOT NULL THEN least(greatest(expires_ms, 0), 253402300799999) END
WHERE NOT (0 <= floor AND floor <= last AND last <= 4294967295 AND bytes >= 0)
    OR (state <> 'live' AND floor <> last)
    OR ttl_ms NOT BETWEEN 1 AND 3162240000000 OR expires_ms NOT BETWEEN 0 AND 253402300799999;

-- NOT VALID: for new rows and changed ones, without reading those that are there.
ALTER TABLE {schema}.sessions
    ADD CONSTRAINT sessions_numbers
        CHECK (0 <= floor AND floor <= last AND last <= 4294967295 AND bytes >= 0) NOT VALID,
    ADD CONSTRAINT sessions_dead CHECK (state = 'live' OR floor = last) NOT VALID,
    ADD CONSTRAINT sessions_ttl CHECK (ttl_ms BETWEEN 1 AND 3162240000000) NOT VALID,
    ADD CONSTRAINT sessions_expiry CHECK (expires_ms BETWEEN 0 AND 253402300799999) NOT VALID;

ALTER TABLE {schema}.messages
    ADD CONSTRAINT messages_seq CHECK (seq BETWEEN 1 AND 4294967295) NOT VALID;

ALTER TABLE {schema}.keys
    ADD CONSTRAINT keys_digest CHECK (octet_length(digest) = 16) NOT VALID,
    ADD CONSTRAINT keys_numbers CHECK (1 <= first AND first <= last AND last <= 4294967295) NOT VALID;


-- Write a whole session under its old numbers; false if there is one of that name. One whose time is
-- over is written as expired: its records stay away, its numbers and keys stay used.
CREATE OR REPLACE FUNCTION {schema}.put(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_state text, a_floor bigint, a_last bigint, a_bytes bigint, a_ttl_ms bigint,
    a_expires_ms bigint, a_records bytea[], a_digests bytea[], a_firsts bigint[], a_lasts bigint[]
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_id bigint;
BEGIN
    PERFORM {schema}.require(a_require, a_lock_timeout_ms);
    IF cardinality(a_records) <> a_last - a_floor OR a_last < ANY (a_lasts) THEN
        RAISE EXCEPTION 'messages or keys of other numbers than the session has'
            USING ERRCODE = 'check_violation';
    END IF;
    IF a_state = 'live' AND a_expires_ms <= {schema}.ms(clock_timestamp()) THEN
        a_state := 'expired'; a_floor := a_last; a_bytes := 0; a_records := '{}';
    END IF;
    INSERT INTO {schema}.sessions (namespace, name, floor, last, bytes, ttl_ms, expires_ms, state)
    VALUES (a_namespace, a_name, a_floor, a_last, a_bytes, a_ttl_ms, a_expires_ms, a_state)
    ON CONFLICT DO NOTHING RETURNING id INTO v_id;
    IF v_id IS NULL THEN RETURN false; END IF;
    INSERT INTO {schema}.messages (session, seq, record)
    SELECT v_id, a_floor + r.ordinality, r.record
    FROM unnest(a_records) WITH ORDINALITY AS r (record);
    INSERT INTO {schema}.keys (session, digest, first, last)
    SELECT v_id, k.digest, k.first, k.last
    FROM unnest(a_digests, a_firsts, a_lasts) AS k (digest, first, last);
    RETURN true;
END $$;
