-- One record of a log can be erased where it stands: the numbers of the others stay.

-- What stands there instead: commands.py has the same bytes.
CREATE FUNCTION {schema}.erased_record() RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '{"v":1,"crc":"d43b6d62","msg":{"id":"erased","role":"erased","content":null,"at":null}}'::bytea
$$;


-- The index has nothing of a record that was replaced. With the rights of its owner, like `drop_index`.
CREATE FUNCTION {schema}.drop_entry() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {schema}.entries e WHERE e.session = NEW.session AND e.seq = NEW.seq;
    DELETE FROM {schema}.words w WHERE w.session = NEW.session AND w.seq = NEW.seq;
    RETURN NULL;
END $$;

CREATE TRIGGER drop_entry AFTER UPDATE OF record ON {schema}.messages
FOR EACH ROW WHEN (NEW.record = {schema}.erased_record()) EXECUTE FUNCTION {schema}.drop_entry();


-- Erase one record that can be seen; whether there ever was such a log, how many were erased, and the
-- bytes it had.
CREATE FUNCTION {schema}.erase_record(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer, a_number bigint
) RETURNS TABLE (known boolean, erased bigint, bytes bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v     {schema}.sessions;
    v_old bytea;
BEGIN
    PERFORM {schema}.require(a_require, a_lock_timeout_ms);
    v := {schema}.hold(a_namespace, a_name, false);
    known := v.id IS NOT NULL; erased := 0; bytes := 0;
    IF v.state = 'live' AND a_number > v.floor
        AND (v.expires_ms IS NULL OR v.expires_ms > {schema}.ms(clock_timestamp())) THEN
        SELECT m.record INTO v_old FROM {schema}.messages m
        WHERE m.session = v.id AND m.seq = a_number AND m.record <> {schema}.erased_record();
        IF FOUND THEN
            erased := 1; bytes := octet_length(v_old);
            UPDATE {schema}.messages m SET record = {schema}.erased_record()
            WHERE m.session = v.id AND m.seq = a_number;
            UPDATE {schema}.sessions s
            SET bytes = s.bytes + octet_length({schema}.erased_record()) - octet_length(v_old)
            WHERE s.namespace = a_namespace AND s.name = a_name;
        END IF;
    END IF;
    RETURN NEXT;
END $$;


-- Add entries and move the index of a log on, if it is where the caller saw it and the log has
-- not been forgotten or rewritten since, and leave out what was erased. Says where it is then.
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
    IF v.id IS NULL OR v.state <> 'live' OR v.floor <> a_floor OR v.last < a_upto THEN
        RETURN;
    END IF;
    floor := v.floor;
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
    WHERE e.seq <> ALL (v_erased);
    INSERT INTO {schema}.words (session, term, seq, weight)
    SELECT v.id, w.term, w.seq, w.weight
    FROM unnest(a_terms, a_term_seqs, a_weights) AS w (term, seq, weight)
    WHERE w.seq <> ALL (v_erased);
    model := a_model; upto := a_upto;
    INSERT INTO {schema}.followed AS f (session, model, upto, floor)
    VALUES (v.id, a_model, a_upto, v.floor)
    ON CONFLICT ON CONSTRAINT followed_pkey DO UPDATE SET model = a_model, upto = a_upto;
    RETURN NEXT;
END $$;
