-- An append may cut off old messages, in its own commit.

-- Those from base + 1 to cut, if cut is the floor: a floor that has moved since was moved by a rewrite, a
-- forget or an expiry. `marks`: which messages were written by when, for an age (commands.Keep).
ALTER TABLE {schema}.sessions
    ADD COLUMN base  bigint NOT NULL DEFAULT 0,
    ADD COLUMN cut   bigint NOT NULL DEFAULT 0,
    ADD COLUMN marks bytea NOT NULL DEFAULT '',
    ADD COLUMN written_ms bigint NOT NULL DEFAULT 0;  -- by this server's clock; 0: by an earlier release


-- When the last number was given.
CREATE FUNCTION {schema}.note_written() RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    NEW.written_ms := {schema}.ms(clock_timestamp());
    RETURN NEW;
END $$;

CREATE TRIGGER note_written BEFORE UPDATE OF last ON {schema}.sessions
FOR EACH ROW WHEN (NEW.last > OLD.last) EXECUTE FUNCTION {schema}.note_written();

CREATE TRIGGER note_loaded BEFORE INSERT ON {schema}.sessions
FOR EACH ROW WHEN (NEW.last > 0) EXECUTE FUNCTION {schema}.note_written();


-- Whether a session and its memories still end where they did; their rows are locked until the commit.
-- As in every forget, the session comes first.
CREATE FUNCTION {schema}.ends_at(
    a_namespace bytea, a_name bytea, a_last bigint, a_beside bytea, a_beside_last bigint, a_lock_timeout_ms integer
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('lock_timeout', a_lock_timeout_ms::text, true);
    RETURN coalesce(({schema}.hold(a_namespace, a_name, false)).last, 0) = a_last
        AND coalesce(({schema}.hold(a_namespace, a_beside, false)).last, 0) = a_beside_last;
END $$;


-- The session and the logs beside it, if they end there; otherwise no row.
CREATE FUNCTION {schema}.forget_at(
    a_namespace bytea, a_name bytea, a_last bigint, a_memories bytea, a_memories_last bigint, a_summaries bytea,
    a_require integer, a_lock_timeout_ms integer
) RETURNS TABLE (known boolean, messages bigint, bytes bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT {schema}.ends_at(a_namespace, a_name, a_last, a_memories, a_memories_last, a_lock_timeout_ms) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM {schema}.forget(a_namespace, a_name, a_require, a_lock_timeout_ms);
    RETURN QUERY SELECT * FROM {schema}.forget(a_namespace, a_memories, a_require, a_lock_timeout_ms);
    RETURN QUERY SELECT * FROM {schema}.forget(a_namespace, a_summaries, a_require, a_lock_timeout_ms);
END $$;


CREATE FUNCTION {schema}.trimmed(a_floor bigint, a_base bigint, a_cut bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a_cut = a_floor AND a_cut > 0 THEN a_cut - a_base ELSE 0 END
$$;


-- An append as `append` makes it; then the numbers up to a_keep go, unless they are gone already, and
-- the marks get one more word, unless a_seen is NULL; those before it are replaced, if they are a_seen. One more ms, because the present one has begun already.
CREATE FUNCTION {schema}.append_kept(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_numbers_max bigint, a_records bytea[], a_size bigint, a_key bytea, a_expect bigint,
    a_ttl bigint, a_keep bigint, a_seen bytea, a_marks bytea
) RETURNS TABLE (outcome text, first bigint, last bigint, level integer)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v      {schema}.sessions;
    v_gone bigint;
BEGIN
    SELECT a.outcome, a.first, a.last, a.level INTO outcome, first, last, level
    FROM {schema}.append(
        a_namespace, a_name, a_require, a_lock_timeout_ms, a_numbers_max, a_records, a_size, a_key,
        a_expect, a_ttl) a;
    IF outcome = 'written' THEN
        v := {schema}.hold(a_namespace, a_name, false);
        IF v.floor < a_keep AND a_keep < v.last THEN
            -- The floor first: by it the index tells what is cut off from what is gone as a whole.
            UPDATE {schema}.sessions s SET floor = a_keep, cut = a_keep,
                base = v.floor - {schema}.trimmed(v.floor, v.base, v.cut)
            WHERE s.namespace = a_namespace AND s.name = a_name;
            WITH gone AS (
                DELETE FROM {schema}.messages m WHERE m.session = v.id AND m.seq <= a_keep
                RETURNING octet_length(m.record) AS bytes
            )
            SELECT coalesce(sum(g.bytes), 0) INTO v_gone FROM gone g;
            UPDATE {schema}.sessions s SET bytes = s.bytes - v_gone
            WHERE s.namespace = a_namespace AND s.name = a_name;
        END IF;
        IF a_seen IS NOT NULL THEN
            UPDATE {schema}.sessions s SET marks = CASE WHEN s.marks = a_seen THEN a_marks ELSE s.marks END
                || format('%s-%s:%s ', first, last, {schema}.ms(clock_timestamp()) + 1)::bytea
            WHERE s.namespace = a_namespace AND s.name = a_name;
        END IF;
    END IF;
    RETURN NEXT;
END $$;


-- The index of a log goes with its messages: as a whole, unless they were cut off by an append. Then
-- the rest of it stays. With the rights of its owner, so that a role that never recalls needs none.
CREATE OR REPLACE FUNCTION {schema}.drop_index() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_session bigint;
    v_upto    bigint;
    v_is_cut  boolean;
BEGIN
    FOR v_session, v_upto IN
        SELECT g.session, max(g.seq) FROM gone g JOIN {schema}.followed f ON f.session = g.session
        GROUP BY g.session
    LOOP
        v_is_cut := EXISTS (SELECT FROM {schema}.messages m WHERE m.session = v_session AND m.seq = v_upto + 1);
        IF v_is_cut THEN
            DELETE FROM {schema}.entries e WHERE e.session = v_session AND e.seq <= v_upto;
            DELETE FROM {schema}.words w WHERE w.session = v_session AND w.seq <= v_upto;
            UPDATE {schema}.followed f SET floor = v_upto WHERE f.session = v_session;
        ELSE
            DELETE FROM {schema}.followed f WHERE f.session = v_session;
            DELETE FROM {schema}.entries e WHERE e.session = v_session;
            DELETE FROM {schema}.words w WHERE w.session = v_session;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;


-- Write a whole session of which so many messages were cut off before; false if there is one of that name.
CREATE FUNCTION {schema}.put_trimmed(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_state text, a_floor bigint, a_last bigint, a_bytes bigint, a_ttl_ms bigint,
    a_expires_ms bigint, a_records bytea[], a_digests bytea[], a_firsts bigint[], a_lasts bigint[],
    a_trimmed bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF a_trimmed < 0 OR a_trimmed > a_floor OR cardinality(a_records) = 0 THEN
        RAISE EXCEPTION 'more cut off than there was' USING ERRCODE = 'check_violation';
    END IF;
    IF NOT {schema}.put(
        a_namespace, a_name, a_require, a_lock_timeout_ms, a_state, a_floor, a_last, a_bytes, a_ttl_ms,
        a_expires_ms, a_records, a_digests, a_firsts, a_lasts) THEN
        RETURN false;
    END IF;
    UPDATE {schema}.sessions s SET cut = s.floor, base = s.floor - a_trimmed
    WHERE s.namespace = a_namespace AND s.name = a_name AND s.state = 'live';
    RETURN true;
END $$;


-- A page of what is visible. The first row is the session: its end, and its state, its floor and how many
-- messages were cut off before the first that is there. `read` stays beside it as it is: clients of earlier
-- releases, which may be at work while one of this release begins, know nothing but a state in that row.
CREATE FUNCTION {schema}.page(
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


-- The same on a replica: see `read_at`, and why it is VOLATILE.
CREATE FUNCTION {schema}.page_at(
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
        RETURN QUERY SELECT p.seq, p.record FROM {schema}.page(
            a_namespace, a_name, a_after, a_before, a_limit, a_forward, a_margin_ms) p;
    END IF;
END $$;


-- Add entries and move the index of a log on, as before; it does not matter that some records were cut
-- off since they were read: those are left out.
CREATE OR REPLACE FUNCTION {schema}.extend(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_model text, a_after bigint, a_upto bigint, a_floor bigint, a_anew boolean,
    a_seqs bigint[], a_sketches text[], a_vectors bytea[],
    a_terms bigint[], a_term_seqs bigint[], a_weights float8[]
) RETURNS TABLE (model text, upto bigint, floor bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v        {schema}.sessions;
    v_erased bigint[];
BEGIN
    PERFORM {schema}.require(a_require, a_lock_timeout_ms);
    v := {schema}.hold(a_namespace, a_name, false);
    IF v.id IS NULL OR v.state <> 'live' OR v.last < a_upto OR a_floor > v.floor
        OR a_floor < v.floor - {schema}.trimmed(v.floor, v.base, v.cut) THEN
        RETURN;
    END IF;
    floor := a_floor;
    IF a_anew OR EXISTS (
        SELECT FROM {schema}.followed f WHERE f.session = v.id AND f.floor <> v.floor
    ) THEN
        DELETE FROM {schema}.followed f WHERE f.session = v.id;
        DELETE FROM {schema}.entries e WHERE e.session = v.id;
        DELETE FROM {schema}.words w WHERE w.session = v.id;
    END IF;
    SELECT f.model, f.upto INTO model, upto FROM {schema}.followed f WHERE f.session = v.id;
    IF coalesce(upto, 0) <> a_after OR coalesce(model, a_model) <> a_model THEN
        IF model IS NOT NULL THEN RETURN NEXT; END IF;
        RETURN;
    END IF;
    v_erased := ARRAY(SELECT m.seq FROM {schema}.messages m WHERE m.session = v.id
        AND m.seq = ANY (a_seqs) AND m.record = {schema}.erased_record());
    INSERT INTO {schema}.entries (session, seq, sketch, vector)
    SELECT v.id, e.seq, e.sketch::bit varying, e.vector
    FROM unnest(a_seqs, a_sketches, a_vectors) AS e (seq, sketch, vector)
    WHERE e.seq > v.floor AND e.seq <> ALL (v_erased);
    INSERT INTO {schema}.words (session, term, seq, weight)
    SELECT v.id, w.term, w.seq, w.weight
    FROM unnest(a_terms, a_term_seqs, a_weights) AS w (term, seq, weight)
    WHERE w.seq > v.floor AND w.seq <> ALL (v_erased);
    model := a_model; upto := a_upto;
    INSERT INTO {schema}.followed AS f (session, model, upto, floor)
    VALUES (v.id, a_model, a_upto, v.floor)
    ON CONFLICT ON CONSTRAINT followed_pkey DO UPDATE SET model = a_model, upto = a_upto;
    RETURN NEXT;
END $$;
