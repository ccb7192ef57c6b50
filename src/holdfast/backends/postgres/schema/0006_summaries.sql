-- Summaries never outlive their session, also where it was rewritten.

-- Unless they have expired or are gone already, the summaries of a session get its new expiry in the
-- same commit. Whoever changes them holds the row of their session, so nobody waits in a circle.
CREATE OR REPLACE FUNCTION {schema}.move_expiry() RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE {schema}.sessions s SET ttl_ms = NEW.ttl_ms, expires_ms = NEW.expires_ms
    WHERE s.namespace = NEW.namespace AND s.name = '\xff73'::bytea || NEW.name
        AND s.state = 'live'
        AND (s.expires_ms IS NULL OR s.expires_ms > {schema}.ms(clock_timestamp()));
    RETURN NULL;
END $$;

DROP TRIGGER move_expiry ON {schema}.sessions;

CREATE TRIGGER move_expiry AFTER UPDATE OF expires_ms ON {schema}.sessions
FOR EACH ROW WHEN (
    OLD.state = 'live' AND NEW.state = 'live' AND NEW.expires_ms IS DISTINCT FROM OLD.expires_ms
    AND get_byte(NEW.name, 0) < 255
) EXECUTE FUNCTION {schema}.move_expiry();


-- Add a summary, if the message up to which it was made is still there. It expires with the
-- session; a repeated one changes nothing. `outcome` as of append, or orphaned.
CREATE OR REPLACE FUNCTION {schema}.derive(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_numbers_max bigint, a_lane bytea, a_source bigint, a_record bytea, a_key bytea
) RETURNS TABLE (outcome text, first bigint, last bigint, level integer)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v {schema}.sessions;
BEGIN
    PERFORM {schema}.require(a_require, a_lock_timeout_ms);
    v := {schema}.hold(a_namespace, a_name, false);
    IF v.id IS NULL OR v.state <> 'live' OR a_source <= v.floor OR a_source > v.last
        OR v.expires_ms <= {schema}.ms(clock_timestamp()) THEN
        outcome := 'orphaned'; first := 0; last := 0; level := 0;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT a.outcome, a.first, a.last, a.level INTO outcome, first, last, level
    FROM {schema}.append(
        a_namespace, a_lane, a_require, a_lock_timeout_ms, a_numbers_max, ARRAY[a_record],
        octet_length(a_record)::bigint, a_key, -1::bigint, -1::bigint) a;
    IF outcome = 'written' THEN
        UPDATE {schema}.sessions s SET ttl_ms = v.ttl_ms, expires_ms = v.expires_ms
        WHERE s.namespace = a_namespace AND s.name = a_lane;
    END IF;
    RETURN NEXT;
END $$;
