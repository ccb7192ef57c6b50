-- Summaries expire with their session; and a sweep that finds what has expired by its index.

-- Unless they have expired or are gone already, the summaries of a session get its new expiry in the
-- same commit. Whoever changes them holds the row of their session, so nobody waits in a circle.
CREATE FUNCTION {schema}.move_expiry() RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE {schema}.sessions s SET ttl_ms = NEW.ttl_ms, expires_ms = NEW.expires_ms
    WHERE s.namespace = NEW.namespace AND s.name = '\xff73'::bytea || NEW.name
        AND s.state = 'live' AND s.expires_ms IS NOT DISTINCT FROM OLD.expires_ms
        AND (s.expires_ms IS NULL OR s.expires_ms > {schema}.ms(clock_timestamp()));
    RETURN NULL;
END $$;

-- With the floor as it was nothing has gone in between: no expiry, no rewrite.
CREATE TRIGGER move_expiry AFTER UPDATE OF expires_ms ON {schema}.sessions
FOR EACH ROW WHEN (
    OLD.state = 'live' AND NEW.state = 'live' AND NEW.floor = OLD.floor AND NEW.expires_ms IS DISTINCT FROM OLD.expires_ms
    AND get_byte(NEW.name, 0) < 255
) EXECUTE FUNCTION {schema}.move_expiry();


-- Free the room of one expired session, at most so many messages; whether there was one. First
-- the whole session is marked, so that no clock can bring half of it back. One that somebody
-- works on is left alone. The clock is read once, before anything is looked for: no index can be
-- used for a time that may be another one for each row. Whoever refreshed the session meanwhile
-- holds its row or has moved its expiry, which is looked at again under the lock.
CREATE OR REPLACE FUNCTION {schema}.sweep(a_messages_max bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
-- The plan is kept for long: it must not be one for a table that is still empty.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v        {schema}.sessions;
    v_now_ms bigint := {schema}.ms(clock_timestamp());
    v_swept  bigint;
BEGIN
    SELECT s.* INTO v FROM {schema}.sessions s
    WHERE s.expires_ms <= v_now_ms
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
