-- Clients of earlier releases, which may be at work while one of this release begins, read by `read` and know
-- nothing but a state in its first row. So the longer first row of schema 8 is that of a function of its own.

-- A page of what is visible. The first row is the session: its end, and its state, its floor and how many
-- messages were cut off before the first that is there.
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


-- As it was up to schema 7.
CREATE OR REPLACE FUNCTION {schema}.read(
    a_namespace bytea, a_name bytea, a_after bigint, a_before bigint, a_limit bigint,
    a_forward boolean, a_margin_ms bigint
) RETURNS TABLE (seq bigint, record bytea)
LANGUAGE sql STABLE AS $$
    SELECT p.seq, CASE WHEN p.place = 1 THEN split_part(convert_from(p.record, 'UTF8'), ' ', 1)::bytea ELSE p.record END
    FROM {schema}.page(a_namespace, a_name, a_after, a_before, a_limit, a_forward, a_margin_ms)
        WITH ORDINALITY AS p (seq, record, place)
    ORDER BY p.place
$$;
