-- What is found by meaning and by words. Derived from the log: it may be dropped and built anew.

-- How far the index of each log has followed it, with vectors of which model. It counts only while
-- the session's floor is the one that is noted here.
CREATE TABLE {schema}.followed (
    session bigint PRIMARY KEY,
    model   text NOT NULL,
    upto    bigint NOT NULL,
    floor   bigint NOT NULL
);

CREATE TABLE {schema}.entries (
    session bigint NOT NULL,
    seq     bigint NOT NULL,
    sketch  bit varying NOT NULL,          -- the sign of each dimension
    vector  bytea NOT NULL,                -- one signed byte a dimension
    PRIMARY KEY (session, seq)
);

-- By session first: how rare a word is, is a matter of the session.
CREATE TABLE {schema}.words (
    session bigint NOT NULL,
    term    bigint NOT NULL,               -- hash of a word
    seq     bigint NOT NULL,
    weight  real NOT NULL,
    PRIMARY KEY (session, term, seq)
);


-- The index of a log goes with the first of its messages: they only ever go all together. With the
-- rights of its owner, so that a role that never recalls needs none on the index.
CREATE FUNCTION {schema}.drop_index() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.followed f JOIN gone g ON g.session = f.session) THEN
        RETURN NULL;
    END IF;
    DELETE FROM {schema}.followed WHERE session IN (SELECT session FROM gone);
    DELETE FROM {schema}.entries WHERE session IN (SELECT session FROM gone);
    DELETE FROM {schema}.words WHERE session IN (SELECT session FROM gone);
    RETURN NULL;
END $$;

CREATE TRIGGER drop_index AFTER DELETE ON {schema}.messages
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.drop_index();


-- Add entries and move the index of a log on, if it is where the caller saw it and the log has
-- not been forgotten or rewritten since. Says where it is then.
CREATE FUNCTION {schema}.extend(
    a_namespace bytea, a_name bytea, a_require integer, a_lock_timeout_ms integer,
    a_model text, a_after bigint, a_upto bigint, a_floor bigint, a_anew boolean,
    a_seqs bigint[], a_sketches text[], a_vectors bytea[],
    a_terms bigint[], a_term_seqs bigint[], a_weights float8[]
) RETURNS TABLE (model text, upto bigint, floor bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    v {schema}.sessions;
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
    INSERT INTO {schema}.entries (session, seq, sketch, vector)
    SELECT v.id, e.seq, e.sketch::bit varying, e.vector
    FROM unnest(a_seqs, a_sketches, a_vectors) AS e (seq, sketch, vector);
    INSERT INTO {schema}.words (session, term, seq, weight)
    SELECT v.id, w.term, w.seq, w.weight
    FROM unnest(a_terms, a_term_seqs, a_weights) AS w (term, seq, weight);
    model := a_model; upto := a_upto;
    INSERT INTO {schema}.followed AS f (session, model, upto, floor)
    VALUES (v.id, a_model, a_upto, v.floor)
    ON CONFLICT ON CONSTRAINT followed_pkey DO UPDATE SET model = a_model, upto = a_upto;
    RETURN NEXT;
END $$;


-- Add a summary, if the message up to which it was made is still there. It expires with the
-- session. `outcome` as of append, or orphaned.
CREATE FUNCTION {schema}.derive(
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
    RETURN QUERY SELECT * FROM {schema}.append(
        a_namespace, a_lane, a_require, a_lock_timeout_ms, a_numbers_max, ARRAY[a_record],
        octet_length(a_record)::bigint, a_key, -1::bigint, -1::bigint);
    UPDATE {schema}.sessions s SET ttl_ms = v.ttl_ms, expires_ms = v.expires_ms
    WHERE s.namespace = a_namespace AND s.name = a_lane;
END $$;
