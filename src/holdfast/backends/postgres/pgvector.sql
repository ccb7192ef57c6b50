-- Vectors for pgvector, beside the index. A copy of what `entries` holds: whatever becomes of it, the
-- index is whole without it. It is made where the server has the extension, by who may make it.

-- name: state
-- Where the extension's types are, quoted (NULL: it is not in this database); whether it could be;
-- whether the copy is there and is kept; whether this role may read it.
SELECT (SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector'),
       EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector'),
       (SELECT count(*) FROM pg_trigger WHERE (tgrelid = to_regclass('{schema}.entries')
            AND tgname IN ('near_added', 'near_gone', 'near_emptied'))
            OR (tgrelid = to_regclass('{schema}.messages') AND tgname = 'near_forgotten')) = 4
       AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('{schema}.near')
                   AND attname = 'near' AND NOT attisdropped),
       coalesce(has_table_privilege(to_regclass('{schema}.near'), 'SELECT'), false)

-- name: extension
CREATE EXTENSION IF NOT EXISTS vector

-- name: make
DROP TABLE IF EXISTS {schema}.near;

-- Of each log, the entries from its first to some number: all of them, if that is the last.
CREATE TABLE {schema}.near (
    session bigint NOT NULL,
    seq     bigint NOT NULL,
    near    {vector}.halfvec NOT NULL,     -- holds numbers from -127 to 127 exactly
    PRIMARY KEY (session, seq)
);

-- Copy the next entries of a log. Who calls it holds the session's row, so that nothing is copied
-- that is being forgotten. With the rights of its owner, like `drop_index`.
CREATE OR REPLACE FUNCTION {schema}.copy_near(a_session bigint, a_limit bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_types name := (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
                     WHERE e.extname = 'vector');
BEGIN
    IF v_types IS NULL THEN RETURN; END IF;
    EXECUTE format($copy$
        INSERT INTO {schema}.near (session, seq, near)
        SELECT e.session, e.seq, ARRAY(
            SELECT (get_byte(e.vector, place) + 128) %% 256 - 128
            FROM generate_series(0, octet_length(e.vector) - 1) AS place)::%I.halfvec
        FROM {schema}.entries e
        WHERE e.session = $1 AND e.seq > coalesce(
            (SELECT max(n.seq) FROM {schema}.near n WHERE n.session = $1), 0)
        ORDER BY e.seq LIMIT $2
    $copy$, v_types) USING a_session, a_limit;
EXCEPTION WHEN OTHERS THEN
    -- The extension is gone, or its library, or a vector is too long for it: the copy is not whole
    -- then, and nobody asks it.
    RETURN;
END $$;

CREATE OR REPLACE FUNCTION {schema}.near_added() RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM {schema}.copy_near(a.session, a.count) FROM (
        SELECT session, count(*) AS count FROM added GROUP BY session) a;
    RETURN NULL;
END $$;

-- In a database that was restored without the extension, this is there and the table is not.
CREATE OR REPLACE FUNCTION {schema}.near_gone() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_regclass('{schema}.near') IS NULL THEN
        RETURN NULL;
    ELSIF TG_OP = 'TRUNCATE' THEN
        DELETE FROM {schema}.near;
    ELSE
        DELETE FROM {schema}.near WHERE (session, seq) IN (SELECT session, seq FROM gone);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER near_added AFTER INSERT ON {schema}.entries
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {schema}.near_added();

CREATE OR REPLACE TRIGGER near_gone AFTER DELETE ON {schema}.entries
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.near_gone();

CREATE OR REPLACE TRIGGER near_emptied AFTER TRUNCATE ON {schema}.entries
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.near_gone();

-- Also where `entries` is one that was made anew, and has no triggers yet.
CREATE OR REPLACE TRIGGER near_forgotten AFTER DELETE ON {schema}.messages
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.near_gone();

-- Bring the copy of a log on, if it is one that was indexed without the extension.
CREATE OR REPLACE FUNCTION {schema}.follow_near(
    a_namespace bytea, a_name bytea, a_lock_timeout_ms integer, a_limit bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v {schema}.sessions;
BEGIN
    PERFORM set_config('lock_timeout', a_lock_timeout_ms::text, true);
    v := {schema}.hold(a_namespace, a_name, false);
    PERFORM {schema}.copy_near(v.id, a_limit);
END $$;
