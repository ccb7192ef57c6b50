-- Used keys and tombstones are kept for a time (`keys_kept_s`), by the clock of this server.

-- When a key was used.
ALTER TABLE {schema}.keys ADD COLUMN used_ms bigint NOT NULL DEFAULT {schema}.ms(clock_timestamp());

-- Since when a session is forgotten or expired.
ALTER TABLE {schema}.sessions ADD COLUMN gone_ms bigint;

UPDATE {schema}.sessions SET gone_ms = {schema}.ms(clock_timestamp()) WHERE state <> 'live';

CREATE INDEX sessions_by_end ON {schema}.sessions (namespace, gone_ms) WHERE gone_ms IS NOT NULL;

CREATE UNIQUE INDEX sessions_by_id ON {schema}.sessions (namespace, id);

CREATE FUNCTION {schema}.note_gone() RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    NEW.gone_ms := CASE WHEN NEW.state <> 'live' THEN {schema}.ms(clock_timestamp()) END;
    RETURN NEW;
END $$;

CREATE TRIGGER note_gone BEFORE UPDATE OF state ON {schema}.sessions
FOR EACH ROW WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION {schema}.note_gone();

CREATE TRIGGER note_gone_loaded BEFORE INSERT ON {schema}.sessions
FOR EACH ROW WHEN (NEW.state <> 'live') EXECUTE FUNCTION {schema}.note_gone();


-- Drop a tombstone of a namespace that is older than a_kept_ms, with its keys, at most so many; whether there was
-- one. Other namespaces may keep theirs for longer.
-- Who is about to write to it holds its row, or waits for this commit and begins the session again.
CREATE FUNCTION {schema}.sweep_gone(a_namespace bytea, a_kept_ms bigint, a_keys_max bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
-- The plan is kept for long: it must not be one for a table that is still empty.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v           {schema}.sessions;
    v_before_ms bigint := {schema}.ms(clock_timestamp()) - a_kept_ms;
    v_swept     bigint;
BEGIN
    SELECT s.* INTO v FROM {schema}.sessions s
    WHERE s.namespace = a_namespace AND s.gone_ms <= v_before_ms AND s.state <> 'live' AND s.expires_ms IS NULL
    ORDER BY s.gone_ms LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    DELETE FROM {schema}.keys k WHERE k.session = v.id AND k.digest IN (
        SELECT o.digest FROM {schema}.keys o WHERE o.session = v.id LIMIT a_keys_max);
    GET DIAGNOSTICS v_swept = ROW_COUNT;
    IF v_swept < a_keys_max THEN
        DELETE FROM {schema}.sessions s WHERE s.namespace = v.namespace AND s.name = v.name;
    END IF;
    RETURN true;
END $$;


-- Look at the next keys of a namespace, by session and digest, and drop those of gone messages that were used
-- longer ago than a_kept_ms; those of a tombstone go with it. It looks at so many keys and sessions at most. Returns where it stopped; no row at
-- the end of all.
CREATE FUNCTION {schema}.sweep_keys(
    a_namespace bytea, a_kept_ms bigint, a_session bigint, a_digest bytea, a_looks_max bigint
) RETURNS TABLE (session bigint, digest bytea)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v           record;
    v_before_ms bigint := {schema}.ms(clock_timestamp()) - a_kept_ms;
    v_left      bigint := a_looks_max;
    v_after     bytea;
    v_page      bytea[];
BEGIN
    FOR v IN
        SELECT s.id, s.floor, s.state FROM {schema}.sessions s
        WHERE s.namespace = a_namespace AND s.id >= a_session ORDER BY s.id LIMIT a_looks_max
    LOOP
        v_left := v_left - 1;
        v_page := '{}';
        IF v.floor > 0 AND v.state = 'live' THEN
            v_after := CASE WHEN v.id = a_session THEN a_digest ELSE '' END;
            v_page := ARRAY(
                SELECT k.digest FROM {schema}.keys k WHERE k.session = v.id AND k.digest > v_after
                ORDER BY k.digest LIMIT v_left + 1);
            DELETE FROM {schema}.keys k WHERE k.session = v.id AND k.digest IN (
                SELECT o.digest FROM {schema}.keys o
                WHERE o.session = v.id AND o.digest > v_after AND o.digest <= v_page[cardinality(v_page)]
                    AND o.last <= v.floor AND o.used_ms <= v_before_ms
                FOR UPDATE SKIP LOCKED);
            v_left := v_left - cardinality(v_page);
        END IF;
        IF v_left <= 0 THEN
            session := v.id;
            -- After the whole session, if none of its keys is left to look at: no digest is that long.
            digest := coalesce(v_page[cardinality(v_page)], decode(repeat('ff', 17), 'hex'));
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
END $$;


-- A forget may leave a digest in the place of the session's name, in its tombstone (holdfast.tombstones). Writes
-- and reads ask for the name first, then for the digest. Clients of earlier releases call the same functions.

CREATE FUNCTION {schema}.digest_name(a_name bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN substr(a_name, 1, 2) IN ('\xff6d', '\xff73')  -- of memories, of summaries
        THEN substr(a_name, 1, 2) || '\xff64' || encode(sha256(substr(a_name, 3)), 'hex')::bytea
        ELSE '\xff64'::bytea || encode(sha256(a_name), 'hex')::bytea END
$$;


-- The row of a session, by its name or by its digest; no row if there is none.
CREATE FUNCTION {schema}.find(a_namespace bytea, a_name bytea) RETURNS SETOF {schema}.sessions
LANGUAGE plpgsql STABLE ROWS 1
-- The plan is kept for long: it must not be one for a table that is still empty.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM {schema}.sessions s
    WHERE s.namespace = a_namespace AND s.name = a_name;
    IF NOT FOUND THEN
        RETURN QUERY SELECT s.* FROM {schema}.sessions s
        WHERE s.namespace = a_namespace AND s.name = {schema}.digest_name(a_name);
    END IF;
END $$;


-- Raise if there is a tombstone with a digest beside a row that was just written: somebody made it in
-- between. Nobody makes one after that, since the row has the name.
CREATE FUNCTION {schema}.refuse_hidden(a_namespace bytea, a_name bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (
        SELECT FROM {schema}.sessions s
        WHERE s.namespace = a_namespace AND s.name = {schema}.digest_name(a_name)
    ) THEN
        RAISE EXCEPTION 'the session was forgotten' USING ERRCODE = 'HF002';
    END IF;
END $$;


-- The row of a session, locked until the commit; all NULL if there is none and none is wanted. It may
-- bear a digest instead of the name: then it is forgotten.
CREATE OR REPLACE FUNCTION {schema}.hold(a_namespace bytea, a_name bytea, a_create boolean)
RETURNS {schema}.sessions
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v {schema}.sessions;
BEGIN
    LOOP
        SELECT s.* INTO v FROM {schema}.sessions s
        WHERE s.namespace = a_namespace AND s.name = a_name FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        SELECT s.* INTO v FROM {schema}.sessions s
        WHERE s.namespace = a_namespace AND s.name = {schema}.digest_name(a_name) FOR NO KEY UPDATE;
        EXIT WHEN FOUND OR NOT a_create;
        BEGIN
            -- The second one waits here for the first, and then finds its row.
            INSERT INTO {schema}.sessions (namespace, name) VALUES (a_namespace, a_name)
            ON CONFLICT DO NOTHING;
            PERFORM {schema}.refuse_hidden(a_namespace, a_name);
        EXCEPTION WHEN SQLSTATE 'HF002' THEN
            NULL;  -- the next look finds it
        END;
    END LOOP;
    RETURN v;
END $$;


-- Appends to one session, one after another, in one commit. Each is a count of records, a key
-- (empty: none), the expected end (-1: any) and a time to live (-1: keep, 0: none). `outcome`
-- is written, repeated, conflict (`last` is the end) or full (`last` is the last number).
CREATE OR REPLACE FUNCTION {schema}.append_many(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_numbers_max bigint, a_records bytea[], a_counts bigint[], a_sizes bigint[],
    a_keys bytea[], a_expects bigint[], a_ttls bigint[]
) RETURNS TABLE (outcome text, first bigint, last bigint, level integer)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v         {schema}.sessions;
    v_now_ms  bigint;
    v_live    boolean;
    v_end     bigint;
    v_at      bigint := 0;
    v_changed boolean := false;
BEGIN
    level := {schema}.require(a_require, a_lock_timeout_ms);
    v := {schema}.hold(a_namespace, a_name, -1 = ANY (a_expects) OR 0 = ANY (a_expects));
    -- The time after the lock was won: whoever waited for it must not count from before.
    v_now_ms := {schema}.ms(clock_timestamp());
    FOR i IN 1 .. cardinality(a_counts) LOOP
        v_at := v_at + a_counts[i];
        IF a_keys[i] <> '' THEN
            SELECT k.first, k.last INTO first, last FROM {schema}.keys k
            WHERE k.session = v.id AND k.digest = a_keys[i];
            IF FOUND THEN
                outcome := 'repeated';
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        v_live := coalesce(v.state = 'live' AND (v.expires_ms IS NULL OR v.expires_ms > v_now_ms), false);
        v_end := CASE WHEN v_live AND v.last > v.floor THEN v.last ELSE 0 END;
        IF a_expects[i] >= 0 AND a_expects[i] <> v_end THEN
            outcome := 'conflict'; first := 0; last := v_end;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF v.last + a_counts[i] > a_numbers_max THEN
            outcome := 'full'; first := 0; last := v.last;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF NOT v_live THEN
            IF v.state <> 'forgotten' THEN
                DELETE FROM {schema}.messages m WHERE m.session = v.id AND m.seq <= v.last;
            END IF;
            v.floor := v.last; v.bytes := 0; v.state := 'live';
        END IF;
        outcome := 'written'; first := v.last + 1; last := v.last + a_counts[i];
        IF a_counts[i] = 1 THEN
            INSERT INTO {schema}.messages (session, seq, record) VALUES (v.id, first, a_records[v_at]);
        ELSE
            INSERT INTO {schema}.messages (session, seq, record)
            SELECT v.id, v.last + r.ordinality, r.record
            FROM unnest(a_records[v_at - a_counts[i] + 1 : v_at]) WITH ORDINALITY AS r (record);
        END IF;
        IF a_keys[i] <> '' THEN
            INSERT INTO {schema}.keys (session, digest, first, last) VALUES (v.id, a_keys[i], first, last);
        END IF;
        IF a_ttls[i] >= 0 THEN v.ttl_ms := nullif(a_ttls[i], 0); END IF;
        -- One more, because the present millisecond has begun already: never before its time.
        v.expires_ms := v_now_ms + v.ttl_ms + 1;
        v.last := last; v.bytes := v.bytes + a_sizes[i];
        v_changed := true;
        RETURN NEXT;
    END LOOP;
    IF v_changed THEN
        UPDATE {schema}.sessions s SET name = a_name, floor = v.floor, last = v.last, bytes = v.bytes,
            ttl_ms = v.ttl_ms, expires_ms = v.expires_ms, state = v.state
        WHERE s.namespace = a_namespace AND s.name = v.name;
    END IF;
END $$;


-- Put records in the place of all that is visible, under new numbers. Outcomes as above.
CREATE OR REPLACE FUNCTION {schema}.rewrite(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_numbers_max bigint, a_records bytea[], a_size bigint, a_expect bigint, a_ttl bigint
) RETURNS TABLE (outcome text, first bigint, last bigint, level integer)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v        {schema}.sessions;
    v_now_ms bigint;
    v_end    bigint;
BEGIN
    level := {schema}.require(a_require, a_lock_timeout_ms);
    v := {schema}.hold(a_namespace, a_name, a_expect <= 0);
    v_now_ms := {schema}.ms(clock_timestamp());
    v_end := CASE WHEN v.state = 'live' AND v.last > v.floor
        AND (v.expires_ms IS NULL OR v.expires_ms > v_now_ms) THEN v.last ELSE 0 END;
    IF a_expect >= 0 AND a_expect <> v_end THEN
        outcome := 'conflict'; first := 0; last := v_end;
        RETURN NEXT;
        RETURN;
    END IF;
    IF v.last + cardinality(a_records) > a_numbers_max THEN
        outcome := 'full'; first := 0; last := v.last;
        RETURN NEXT;
        RETURN;
    END IF;
    DELETE FROM {schema}.messages m WHERE m.session = v.id AND m.seq <= v.last;
    outcome := 'written'; first := v.last + 1; last := v.last + cardinality(a_records);
    INSERT INTO {schema}.messages (session, seq, record)
    SELECT v.id, v.last + r.ordinality, r.record
    FROM unnest(a_records) WITH ORDINALITY AS r (record);
    IF a_ttl >= 0 THEN v.ttl_ms := nullif(a_ttl, 0); END IF;
    UPDATE {schema}.sessions s SET name = a_name, floor = v.last, last = rewrite.last, bytes = a_size,
        ttl_ms = v.ttl_ms, expires_ms = v_now_ms + v.ttl_ms + 1, state = 'live'
    WHERE s.namespace = a_namespace AND s.name = v.name;
    RETURN NEXT;
END $$;


-- Erase the records of a session. Its row stays as the tombstone, its keys stay used. Says
-- whether there was a session, and how much of it could be seen.
CREATE OR REPLACE FUNCTION {schema}.forget(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer
) RETURNS TABLE (known boolean, messages bigint, bytes bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v {schema}.sessions;
BEGIN
    PERFORM {schema}.require(a_require, a_lock_timeout_ms);
    v := {schema}.hold(a_namespace, a_name, false);
    known := v.id IS NOT NULL; messages := 0; bytes := 0;
    IF known THEN
        IF v.state = 'live' AND (v.expires_ms IS NULL OR v.expires_ms > {schema}.ms(clock_timestamp())) THEN
            messages := v.last - v.floor; bytes := v.bytes;
        END IF;
        DELETE FROM {schema}.messages m WHERE m.session = v.id AND m.seq <= v.last;
        UPDATE {schema}.sessions s SET floor = v.last, bytes = 0, ttl_ms = NULL,
            expires_ms = NULL, state = 'forgotten', gone_ms = {schema}.ms(clock_timestamp())
        WHERE s.namespace = a_namespace AND s.name = v.name;
    END IF;
    RETURN NEXT;
END $$;


-- Erase the records of a session, and leave a digest in the place of its name. Where a load has left such a
-- tombstone beside it, that one stays, and this row keeps a name that nobody asks for.
CREATE FUNCTION {schema}.forget_now(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer
) RETURNS TABLE (known boolean, messages bigint, bytes bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v {schema}.sessions;
    w {schema}.sessions;
BEGIN
    SELECT f.known, f.messages, f.bytes INTO known, messages, bytes
    FROM {schema}.forget(a_namespace, a_name, a_require, a_lock_timeout_ms) f;
    v := {schema}.hold(a_namespace, a_name, false);
    -- One that was not known may have begun in between: that one stays.
    IF known AND v.name = a_name THEN
        w := {schema}.hold(a_namespace, {schema}.digest_name(a_name), false);
        IF w.id IS NOT NULL THEN
            INSERT INTO {schema}.keys (session, digest, first, last)
            SELECT w.id, k.digest, k.first, k.last FROM {schema}.keys k WHERE k.session = v.id
            ON CONFLICT (session, digest) DO UPDATE SET used_ms = EXCLUDED.used_ms;
            UPDATE {schema}.sessions s SET floor = greatest(v.last, w.last), last = greatest(v.last, w.last),
                gone_ms = v.gone_ms
            WHERE s.namespace = a_namespace AND s.name = w.name;
        END IF;
        UPDATE {schema}.sessions s SET marks = '', name =
            CASE WHEN w.id IS NULL THEN {schema}.digest_name(a_name) ELSE '\xff78'::bytea || v.id::text::bytea END
        WHERE s.namespace = a_namespace AND s.name = a_name;
    END IF;
    RETURN NEXT;
END $$;


-- As `forget_at`, with digests in the place of names.
CREATE FUNCTION {schema}.forget_now_at(
    a_namespace bytea, a_name bytea, a_last bigint, a_memories bytea, a_memories_last bigint, a_summaries bytea,
    a_require integer, a_lock_timeout_ms integer
) RETURNS TABLE (known boolean, messages bigint, bytes bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT {schema}.ends_at(a_namespace, a_name, a_last, a_memories, a_memories_last, a_lock_timeout_ms) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM {schema}.forget_now(a_namespace, a_name, a_require, a_lock_timeout_ms);
    RETURN QUERY SELECT * FROM {schema}.forget_now(a_namespace, a_memories, a_require, a_lock_timeout_ms);
    RETURN QUERY SELECT * FROM {schema}.forget_now(a_namespace, a_summaries, a_require, a_lock_timeout_ms);
END $$;


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
    BEGIN
        INSERT INTO {schema}.sessions (namespace, name, floor, last, bytes, ttl_ms, expires_ms, state)
        VALUES (a_namespace, a_name, a_floor, a_last, a_bytes, a_ttl_ms, a_expires_ms, a_state)
        ON CONFLICT DO NOTHING RETURNING id INTO v_id;
        IF v_id IS NULL THEN RETURN false; END IF;
        PERFORM {schema}.refuse_hidden(a_namespace, a_name);
    EXCEPTION WHEN SQLSTATE 'HF002' THEN
        RETURN false;
    END;
    INSERT INTO {schema}.messages (session, seq, record)
    SELECT v_id, a_floor + r.ordinality, r.record
    FROM unnest(a_records) WITH ORDINALITY AS r (record);
    INSERT INTO {schema}.keys (session, digest, first, last)
    SELECT v_id, k.digest, k.first, k.last
    FROM unnest(a_digests, a_firsts, a_lasts) AS k (digest, first, last);
    RETURN true;
END $$;


-- A page of what is visible. The first row is the session: its end, and its state, its floor and how many
-- messages were cut off before the first that is there. `read` stays beside it as it is: clients of earlier
-- releases, which may be at work while one of this release begins, know nothing but a state in that row.
CREATE OR REPLACE FUNCTION {schema}.page(
    a_namespace bytea, a_name bytea, a_after bigint, a_before bigint, a_limit bigint,
    a_forward boolean, a_margin_ms bigint
) RETURNS TABLE (seq bigint, record bytea)
LANGUAGE plpgsql STABLE
-- The plan is kept for long: it must not be one for a table that is still empty.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v        {schema}.sessions;
    v_now_ms bigint := {schema}.ms(now());
BEGIN
    SELECT f.* INTO v FROM {schema}.find(a_namespace, a_name) f;
    IF NOT FOUND THEN
        seq := 0; record := 'never';
        RETURN NEXT;
        RETURN;
    END IF;
    IF a_margin_ms > 0 AND v.expires_ms <= v_now_ms + a_margin_ms THEN
        seq := 0; record := 'expiring';
        RETURN NEXT;
        RETURN;
    END IF;
    IF v.state = 'live' AND v.expires_ms <= v_now_ms THEN v.state := 'expired'; END IF;
    seq := CASE WHEN v.state = 'live' AND v.last > v.floor THEN v.last ELSE 0 END;
    record := (v.state || ' ' || v.floor || ' ' || {schema}.trimmed(v.floor, v.base, v.cut))::bytea;
    RETURN NEXT;
    IF seq = 0 THEN
        RETURN;
    ELSIF a_forward THEN
        RETURN QUERY SELECT m.seq, m.record FROM {schema}.messages m
        WHERE m.session = v.id AND m.seq > greatest(a_after, v.floor) AND m.seq < least(a_before, v.last + 1)
        ORDER BY m.seq LIMIT a_limit;
    ELSE
        RETURN QUERY SELECT m.seq, m.record FROM {schema}.messages m
        WHERE m.session = v.id AND m.seq > v.floor AND m.seq < least(a_before, v.last + 1)
        ORDER BY m.seq DESC LIMIT a_limit;
    END IF;
END $$;


-- A page of what is visible. The first row is the session itself: its end (0: nothing to be
-- seen) and its state. STABLE: everything in here is of one snapshot, that of the statement;
-- now() is from before it, so that no refresh can fall in between. With a margin, a session
-- that expires within it says `expiring` instead: a replica's clock is not the primary's.
CREATE OR REPLACE FUNCTION {schema}.read(
    a_namespace bytea, a_name bytea, a_after bigint, a_before bigint, a_limit bigint,
    a_forward boolean, a_margin_ms bigint
) RETURNS TABLE (seq bigint, record bytea)
LANGUAGE plpgsql STABLE
-- The plan is kept for long: it must not be one for a table that is still empty.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v        {schema}.sessions;
    v_now_ms bigint := {schema}.ms(now());
BEGIN
    SELECT f.* INTO v FROM {schema}.find(a_namespace, a_name) f;
    IF NOT FOUND THEN
        seq := 0; record := 'never';
        RETURN NEXT;
        RETURN;
    END IF;
    IF a_margin_ms > 0 AND v.expires_ms <= v_now_ms + a_margin_ms THEN
        seq := 0; record := 'expiring';
        RETURN NEXT;
        RETURN;
    END IF;
    IF v.state = 'live' AND v.expires_ms <= v_now_ms THEN v.state := 'expired'; END IF;
    seq := CASE WHEN v.state = 'live' AND v.last > v.floor THEN v.last ELSE 0 END;
    record := v.state::bytea;
    RETURN NEXT;
    IF seq = 0 THEN
        RETURN;
    ELSIF a_forward THEN
        RETURN QUERY SELECT m.seq, m.record FROM {schema}.messages m
        WHERE m.session = v.id AND m.seq > greatest(a_after, v.floor) AND m.seq < least(a_before, v.last + 1)
        ORDER BY m.seq LIMIT a_limit;
    ELSE
        RETURN QUERY SELECT m.seq, m.record FROM {schema}.messages m
        WHERE m.session = v.id AND m.seq > v.floor AND m.seq < least(a_before, v.last + 1)
        ORDER BY m.seq DESC LIMIT a_limit;
    END IF;
END $$;


-- ANALYZE, which the server runs by itself, keeps samples of every column, and shows them in pg_stats: no
-- forget takes those away.
ALTER TABLE {schema}.sessions ALTER COLUMN name SET STATISTICS 0;

ALTER TABLE {schema}.messages ALTER COLUMN record SET STATISTICS 0;

-- A column that is set to its own type loses those that are there. That needs its triggers to be away, and
-- cannot be where somebody has made a view of it: then they stay.
DO $$ BEGIN
    DROP TRIGGER IF EXISTS move_expiry ON {schema}.sessions;
    DROP TRIGGER IF EXISTS drop_entry ON {schema}.messages;
    ALTER TABLE {schema}.sessions ALTER COLUMN name TYPE bytea;
    ALTER TABLE {schema}.messages ALTER COLUMN record TYPE bytea;
    CREATE TRIGGER move_expiry AFTER UPDATE OF expires_ms ON {schema}.sessions
    FOR EACH ROW WHEN (
        OLD.state = 'live' AND NEW.state = 'live' AND NEW.expires_ms IS DISTINCT FROM OLD.expires_ms
        AND get_byte(NEW.name, 0) < 255
    ) EXECUTE FUNCTION {schema}.move_expiry();
    CREATE TRIGGER drop_entry AFTER UPDATE OF record ON {schema}.messages
    FOR EACH ROW WHEN (NEW.record = {schema}.erased_record()) EXECUTE FUNCTION {schema}.drop_entry();
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;
