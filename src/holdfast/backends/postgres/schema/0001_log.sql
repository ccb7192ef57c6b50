-- The log: sessions, their messages in order, the keys that were used, and the steps on them.
-- {schema} is put in by migration.py. Steps are functions so that each command is one statement:
-- one round trip, one commit, one sync, with plans that the server keeps by itself.

CREATE TABLE {schema}.holdfast_schema (
    version integer PRIMARY KEY,
    applied timestamptz NOT NULL DEFAULT now()
);

-- The row is the lock of its session: a write holds it until its commit, so the order of
-- commits is the order of numbers. The space left free keeps its updates on its own page,
-- away from every index.
CREATE TABLE {schema}.sessions (
    id         bigint GENERATED ALWAYS AS IDENTITY,
    namespace  bytea NOT NULL,
    name       bytea NOT NULL,             -- UTF-8, lone surrogates allowed; ordered by bytes
    floor      bigint NOT NULL DEFAULT 0,  -- numbers up to this one are gone for good
    last       bigint NOT NULL DEFAULT 0,  -- the last number ever given
    bytes      bigint NOT NULL DEFAULT 0,  -- of all records above the floor
    ttl_ms     bigint,
    expires_ms bigint,                     -- since 1970, by the clock of this server
    state      text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'expired', 'forgotten')),
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 50);

CREATE INDEX sessions_by_expiry ON {schema}.sessions (expires_ms) WHERE expires_ms IS NOT NULL;

-- Above the floor of a session no number is missing.
CREATE TABLE {schema}.messages (
    session bigint NOT NULL,
    seq     bigint NOT NULL,
    record  bytea NOT NULL,
    PRIMARY KEY (session, seq)
);

CREATE TABLE {schema}.keys (
    session bigint NOT NULL,
    digest  bytea NOT NULL,
    first   bigint NOT NULL,
    last    bigint NOT NULL,
    PRIMARY KEY (session, digest)
);


-- The milliseconds of an instant since 1970. They are cut, not rounded.
CREATE FUNCTION {schema}.ms(a_instant timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT floor(extract(epoch FROM a_instant) * 1000)::bigint
$$;


-- What the commit of this transaction will survive, as the settings in force say: 0 nothing
-- (the log is not even handed to the operating system), 1 the end of the server, 2 power loss,
-- 3 loss of the machine.
CREATE FUNCTION {schema}.durability() RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_commit text := current_setting('synchronous_commit');
BEGIN
    IF v_commit = 'off' THEN RETURN 0; END IF;
    IF current_setting('fsync') = 'off' THEN RETURN 1; END IF;
    IF v_commit IN ('on', 'remote_apply') AND current_setting('synchronous_standby_names') <> '' THEN
        RETURN 3;
    END IF;
    RETURN 2;
END $$;


-- Make this transaction keep what is required where it is ours to decide: synchronous_commit
-- is, fsync is not. It holds until the commit, hence for the commit. Nothing is written where
-- the level cannot be reached any more: somebody may have changed the server after we connected.
-- Waiting for a lock is bounded, too.
CREATE FUNCTION {schema}.require(a_require integer, a_lock_timeout_ms integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_commit text := current_setting('synchronous_commit');
    v_level  integer;
BEGIN
    PERFORM set_config('lock_timeout', a_lock_timeout_ms::text, true);
    IF a_require >= 3 AND v_commit IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    ELSIF a_require >= 1 AND v_commit = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    v_level := {schema}.durability();
    IF v_level < a_require THEN
        RAISE EXCEPTION 'fsync is %, synchronous_standby_names is ''%''',
            current_setting('fsync'), current_setting('synchronous_standby_names')
            USING ERRCODE = 'HF001';
    END IF;
    RETURN v_level;
END $$;


-- The row of a session, locked until the commit; all NULL if there is none and none is wanted.
CREATE FUNCTION {schema}.hold(a_namespace bytea, a_name bytea, a_create boolean)
RETURNS {schema}.sessions
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v {schema}.sessions;
BEGIN
    LOOP
        SELECT s.* INTO v FROM {schema}.sessions s
        WHERE s.namespace = a_namespace AND s.name = a_name FOR NO KEY UPDATE;
        EXIT WHEN FOUND OR NOT a_create;
        -- Whoever comes second waits here for the first, and then finds its row.
        INSERT INTO {schema}.sessions (namespace, name) VALUES (a_namespace, a_name)
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN v;
END $$;


-- Appends to one session, one after another, in one commit. Each is a count of records, a key
-- (empty: none), the expected end (-1: any) and a time to live (-1: keep, 0: none). `outcome`
-- is written, repeated, conflict (`last` is the end) or full (`last` is the last number).
CREATE FUNCTION {schema}.append_many(
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
        UPDATE {schema}.sessions s SET floor = v.floor, last = v.last, bytes = v.bytes,
            ttl_ms = v.ttl_ms, expires_ms = v.expires_ms, state = v.state
        WHERE s.namespace = a_namespace AND s.name = a_name;
    END IF;
END $$;


-- One append. Most often the session is there, live, does not expire, and ends where it is
-- expected to: then its row is locked and changed in one go. Every other case is left to
-- `append_many`; where time counts, the lock must be held before the clock is read, and an
-- update computes its values before it waits. A key that somebody else used while this one
-- waited breaks the unique index: nothing is written then, and the next try finds the key.
CREATE FUNCTION {schema}.append(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_numbers_max bigint, a_records bytea[], a_size bigint, a_key bytea,
    a_expect bigint, a_ttl bigint
) RETURNS TABLE (outcome text, first bigint, last bigint, level integer)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v_id    bigint;
    v_count bigint := cardinality(a_records);
BEGIN
    level := {schema}.require(a_require, a_lock_timeout_ms);
    IF a_ttl <= 0 AND (a_key = '' OR NOT EXISTS (
        SELECT FROM {schema}.sessions s JOIN {schema}.keys k ON k.session = s.id
        WHERE s.namespace = a_namespace AND s.name = a_name AND k.digest = a_key
    )) THEN
        UPDATE {schema}.sessions s SET last = s.last + v_count, bytes = s.bytes + a_size
        WHERE s.namespace = a_namespace AND s.name = a_name AND s.state = 'live'
            AND s.ttl_ms IS NULL AND s.expires_ms IS NULL
            AND (a_expect < 0 OR (s.last = a_expect AND s.last > s.floor))
            AND s.last + v_count <= a_numbers_max
        RETURNING s.id, s.last - v_count + 1, s.last INTO v_id, first, last;
    END IF;
    IF v_id IS NULL THEN
        RETURN QUERY SELECT * FROM {schema}.append_many(
            a_namespace, a_name, a_require, a_lock_timeout_ms, a_numbers_max, a_records,
            ARRAY[v_count], ARRAY[a_size], ARRAY[a_key], ARRAY[a_expect], ARRAY[a_ttl]);
        RETURN;
    END IF;
    IF v_count = 1 THEN
        INSERT INTO {schema}.messages (session, seq, record) VALUES (v_id, first, a_records[1]);
    ELSE
        INSERT INTO {schema}.messages (session, seq, record)
        SELECT v_id, first - 1 + r.ordinality, r.record
        FROM unnest(a_records) WITH ORDINALITY AS r (record);
    END IF;
    IF a_key <> '' THEN
        INSERT INTO {schema}.keys (session, digest, first, last) VALUES (v_id, a_key, first, last);
    END IF;
    outcome := 'written';
    RETURN NEXT;
END $$;


-- Appends to several sessions in one commit: `a_shares` says how many of them each session has.
-- The caller sorts the sessions, so that no two such statements wait for each other. A session
-- whose lock somebody holds is not waited for, so as not to hold up the rest: its appends are
-- `busy`, and nothing of them is written.
CREATE FUNCTION {schema}.append_all(
    a_namespace bytea, a_names bytea[], a_shares bigint[], a_require integer,
    a_lock_timeout_ms integer, a_numbers_max bigint, a_records bytea[], a_counts bigint[],
    a_sizes bigint[], a_keys bytea[], a_expects bigint[], a_ttls bigint[]
) RETURNS TABLE (outcome text, first bigint, last bigint, level integer)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v_at     bigint := 1;
    v_record bigint := 1;
    v_end    bigint;
    v_upto   bigint;
BEGIN
    FOR i IN 1 .. cardinality(a_names) LOOP
        v_end := v_at + a_shares[i] - 1;
        v_upto := v_record - 1;
        FOR j IN v_at .. v_end LOOP v_upto := v_upto + a_counts[j]; END LOOP;
        PERFORM FROM {schema}.sessions s WHERE s.namespace = a_namespace AND s.name = a_names[i]
        FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (
            SELECT FROM {schema}.sessions s WHERE s.namespace = a_namespace AND s.name = a_names[i]
        ) THEN
            outcome := 'busy'; first := 0; last := 0; level := 0;
            FOR j IN v_at .. v_end LOOP RETURN NEXT; END LOOP;
        ELSIF v_end = v_at THEN
            RETURN QUERY SELECT * FROM {schema}.append(
                a_namespace, a_names[i], a_require, a_lock_timeout_ms, a_numbers_max,
                a_records[v_record : v_upto], a_sizes[v_at], a_keys[v_at], a_expects[v_at], a_ttls[v_at]);
        ELSE
            RETURN QUERY SELECT * FROM {schema}.append_many(
                a_namespace, a_names[i], a_require, a_lock_timeout_ms, a_numbers_max,
                a_records[v_record : v_upto], a_counts[v_at : v_end], a_sizes[v_at : v_end],
                a_keys[v_at : v_end], a_expects[v_at : v_end], a_ttls[v_at : v_end]);
        END IF;
        v_at := v_end + 1;
        v_record := v_upto + 1;
    END LOOP;
END $$;


-- Put records in the place of all that is visible, under new numbers. Outcomes as above.
CREATE FUNCTION {schema}.rewrite(
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
    UPDATE {schema}.sessions s SET floor = v.last, last = rewrite.last, bytes = a_size,
        ttl_ms = v.ttl_ms, expires_ms = v_now_ms + v.ttl_ms + 1, state = 'live'
    WHERE s.namespace = a_namespace AND s.name = a_name;
    RETURN NEXT;
END $$;


-- Erase the records of a session. Its row stays as the tombstone, its keys stay used. Says
-- whether there was a session, and how much of it could be seen.
CREATE FUNCTION {schema}.forget(
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
            expires_ms = NULL, state = 'forgotten'
        WHERE s.namespace = a_namespace AND s.name = a_name;
    END IF;
    RETURN NEXT;
END $$;


-- Write a whole session under its old numbers; false if one of that name was ever there.
CREATE FUNCTION {schema}.put(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_state text, a_floor bigint, a_last bigint, a_bytes bigint, a_ttl_ms bigint,
    a_expires_ms bigint, a_records bytea[], a_digests bytea[], a_firsts bigint[], a_lasts bigint[]
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_id bigint;
BEGIN
    PERFORM {schema}.require(a_require, a_lock_timeout_ms);
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


-- Free the room of one expired session, at most so many messages; whether there was one. First
-- the whole session is marked, so that no clock can bring half of it back. One that somebody
-- works on is left alone.
CREATE FUNCTION {schema}.sweep(a_messages_max bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v       {schema}.sessions;
    v_swept bigint;
BEGIN
    SELECT s.* INTO v FROM {schema}.sessions s
    WHERE s.expires_ms <= {schema}.ms(clock_timestamp())
    ORDER BY s.expires_ms LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    DELETE FROM {schema}.messages m WHERE m.session = v.id AND m.seq IN (
        SELECT o.seq FROM {schema}.messages o WHERE o.session = v.id AND o.seq <= v.last
        ORDER BY o.seq LIMIT a_messages_max);
    GET DIAGNOSTICS v_swept = ROW_COUNT;
    UPDATE {schema}.sessions s SET floor = v.last, bytes = 0, state = 'expired',
        expires_ms = CASE WHEN v_swept < a_messages_max THEN NULL ELSE v.expires_ms END
    WHERE s.namespace = v.namespace AND s.name = v.name;
    RETURN true;
END $$;


-- A page of what is visible. The first row is the session itself: its end (0: nothing to be
-- seen) and its state. STABLE: everything in here is of one snapshot, that of the statement;
-- now() is from before it, so that no refresh can fall in between. With a margin, a session
-- that expires within it says `expiring` instead: a replica's clock is not the primary's.
CREATE FUNCTION {schema}.read(
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
    SELECT s.* INTO v FROM {schema}.sessions s
    WHERE s.namespace = a_namespace AND s.name = a_name;
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


-- The same on a replica, if it has come to where it must be; otherwise one row, `behind`.
-- VOLATILE: the query below takes its snapshot after the check. In the same snapshot the check
-- would be worthless, since the replica moves on between the two. Only READ COMMITTED does so.
CREATE FUNCTION {schema}.read_at(
    a_token pg_lsn, a_namespace bytea, a_name bytea, a_after bigint, a_before bigint,
    a_limit bigint, a_forward boolean, a_margin_ms bigint
) RETURNS TABLE (seq bigint, record bytea)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    IF NOT pg_is_in_recovery() OR current_setting('transaction_isolation') <> 'read committed' THEN
        seq := 0; record := 'unfit';
        RETURN NEXT;
    ELSIF coalesce(pg_last_wal_replay_lsn() < a_token, true) THEN
        seq := 0; record := 'behind';
        RETURN NEXT;
    ELSE
        RETURN QUERY SELECT r.seq, r.record FROM {schema}.read(
            a_namespace, a_name, a_after, a_before, a_limit, a_forward, a_margin_ms) r;
    END IF;
END $$;
