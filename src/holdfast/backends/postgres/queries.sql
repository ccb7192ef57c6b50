-- requests.py puts in what stays the same: {schema}, {namespace}, and as {terms} the required
-- level and the longest wait for a lock. Placeholders are psycopg's; b is binary.

-- name: append
SELECT * FROM {schema}.append({namespace}, %b, {terms}, {numbers_max}, {records}, %b, {rest})

-- name: append_kept
SELECT * FROM {schema}.append_kept(
    {namespace}, %b, {terms}, {numbers_max}, %b::bytea[], %b, %b, %b, %b, %b::bigint, %b::bytea, %b)

-- name: append_many
SELECT * FROM {schema}.append_many(
    {namespace}, %b, {terms}, {numbers_max}, %b, %b::bigint[], %b::bigint[], %b, %b::bigint[], %b::bigint[])

-- name: append_all
SELECT * FROM {schema}.append_all(
    {namespace}, %b, %b::bigint[], {terms}, {numbers_max}, %b, %b::bigint[], %b::bigint[], %b, %b::bigint[], %b::bigint[])

-- name: rewrite
SELECT * FROM {schema}.rewrite({namespace}, %b, {terms}, {numbers_max}, %b::bytea[], %b, %b, %b)

-- name: forget
SELECT known, messages, bytes FROM {schema}.forget({namespace}, %b, {terms})
UNION ALL SELECT known, messages, bytes FROM {schema}.forget({namespace}, %b, {terms})
UNION ALL SELECT known, messages, bytes FROM {schema}.forget({namespace}, %b, {terms})

-- name: forget_now
SELECT known, messages, bytes FROM {schema}.forget_now({namespace}, %b, {terms})
UNION ALL SELECT known, messages, bytes FROM {schema}.forget_now({namespace}, %b, {terms})
UNION ALL SELECT known, messages, bytes FROM {schema}.forget_now({namespace}, %b, {terms})

-- name: forget_now_at
SELECT known, messages, bytes FROM {schema}.forget_now_at(
    {namespace}, %b, %b::bigint, %b, %b::bigint, %b, {terms})

-- name: forget_at
SELECT known, messages, bytes FROM {schema}.forget_at(
    {namespace}, %b, %b::bigint, %b, %b::bigint, %b, {terms})

-- name: erase_record
SELECT known, erased, bytes FROM {schema}.erase_record({namespace}, %b, {terms}, %b::bigint)

-- name: import
SELECT {schema}.put(
    {namespace}, %b, {terms}, %s, %b::bigint, %b::bigint, %b::bigint, %b::bigint, %b::bigint,
    %b::bytea[], %b::bytea[], %b::bigint[], %b::bigint[])

-- name: import_trimmed
SELECT {schema}.put_trimmed(
    {namespace}, %b, {terms}, %s, %b::bigint, %b::bigint, %b::bigint, %b::bigint, %b::bigint,
    %b::bytea[], %b::bytea[], %b::bigint[], %b::bigint[], %b::bigint)

-- name: read
SELECT seq, record FROM {schema}.page({namespace}, %b, %b::bigint, %b::bigint, %b::bigint, %b, 0)

-- name: read_at
-- A replica on another timeline may be beyond the place without having what is there.
SELECT seq, record FROM {schema}.page_at(
    CASE WHEN %b::bigint = (
        SELECT greatest(c.timeline_id, r.min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver))
        FROM pg_control_checkpoint() c, pg_control_recovery() r)
    THEN %s::pg_lsn ELSE 'FFFFFFFF/FFFFFFFF' END,
    {namespace}, %b, %b::bigint, %b::bigint, %b::bigint, %b, %b::bigint)

-- name: stat
SELECT CASE WHEN state = 'live' AND expires_ms <= {schema}.ms(now()) THEN 'expired' ELSE state END,
       last, last - floor, bytes, ttl_ms, expires_ms, {schema}.trimmed(floor, base, cut),
       {schema}.ms(now()), marks, written_ms
FROM {schema}.find({namespace}, %b)

-- name: names
SELECT name FROM {schema}.sessions
WHERE namespace = {namespace} AND name >= %b AND name > %b AND name < %b
  AND (%b OR (state = 'live' AND (expires_ms IS NULL OR expires_ms > {schema}.ms(now()))))
ORDER BY name LIMIT %b

-- name: export
-- One statement, hence one snapshot: the session, its visible records, its keys.
WITH s AS MATERIALIZED (
    SELECT *, state = 'live' AND (expires_ms IS NULL OR expires_ms > {schema}.ms(now())) AS visible
    FROM {schema}.find({namespace}, %b)
)
SELECT 'session', CASE WHEN state = 'live' AND NOT visible THEN 'expired' ELSE state END::bytea,
       last, last - floor, bytes, ttl_ms, expires_ms, {schema}.trimmed(floor, base, cut)
FROM s
UNION ALL
SELECT 'record', m.record, m.seq, NULL, NULL, NULL, NULL, NULL
FROM s JOIN {schema}.messages m ON m.session = s.id AND m.seq > s.floor WHERE s.visible
UNION ALL
SELECT 'key', k.digest, k.first, k.last, NULL, NULL, NULL, NULL
FROM s JOIN {schema}.keys k ON k.session = s.id

-- name: sweep
SELECT {schema}.sweep(%b::bigint)

-- name: sweep_gone
SELECT {schema}.sweep_gone({namespace}, %b::bigint, %b::bigint)

-- name: sweep_keys
SELECT session, digest FROM {schema}.sweep_keys({namespace}, %b::bigint, %b::bigint, %b, %b::bigint)

-- name: expire
-- What was seen expired stays so, whatever a clock says later; its summaries too. Somebody who works
-- on it just now decides by himself. Its commit waits for no standby: it is part of a read.
WITH due AS MATERIALIZED (
    SELECT namespace, name FROM {schema}.sessions
    WHERE namespace = {namespace} AND name IN (%b, %b) AND state = 'live'
      AND expires_ms <= {schema}.ms(clock_timestamp())
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.sessions s SET floor = s.last, bytes = 0, state = 'expired'
FROM due WHERE s.namespace = due.namespace AND s.name = due.name
RETURNING set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'off' ELSE 'local' END, true)

-- name: vacuum
VACUUM (SKIP_LOCKED) {tables}

-- name: vacuum_full
VACUUM (FULL, SKIP_LOCKED) {tables}

-- name: rewritten
-- VACUUM passes over, with a warning, what it may not touch or finds locked. A row that an older
-- transaction could see is copied, deleted as it is: one that has a snapshot, or that only wrote.
SELECT quote_ident(nspname) || '.' || quote_ident(relname), pg_relation_filenode(c.oid),
       EXISTS (SELECT FROM pg_stat_activity
               WHERE pid <> pg_backend_pid() AND (
                   (age(backend_xmin) > 0 OR age(backend_xid) > 0)
                   AND coalesce(datname = current_database(), true)
                   AND NOT (starts_with(query, 'autovacuum: VACUUM ')  -- needs no old rows; ANALYZE does
                            AND NOT starts_with(query, 'autovacuum: VACUUM ANALYZE '))
                   OR query = '<insufficient privilege>' AND datname = current_database()))
       OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database())
       OR EXISTS (SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid IN (to_regclass('{schema}.sessions'), to_regclass('{schema}.messages'), to_regclass('{schema}.entries'),
                to_regclass('{schema}.words'), to_regclass('{schema}.near'))

-- name: position
-- After a commit that was flushed, the flushed end of the log is at or after that commit. One
-- that was not flushed (synchronous_commit=off) is before the place where the next record goes.
SELECT (CASE WHEN %b THEN pg_current_wal_flush_lsn() ELSE pg_current_wal_insert_lsn() END)::text || '@' || ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint

-- name: opened
-- Where the primary is, with its timeline: the control file would say that only after a checkpoint.
SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_flush_lsn()::text || '@' || ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint END

-- name: confirmed
-- Whether a synchronous standby has the log up to a place on its disk (empty: up to where it is now, which
-- is at or after a commit that is done). NULL: there is no synchronous standby, or this role may not see it.
WITH here AS MATERIALIZED (SELECT coalesce(nullif(%s, '')::pg_lsn, pg_current_wal_flush_lsn()) AS lsn)
SELECT here.lsn::text, here.lsn::text || '@' || ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint,
       (SELECT max(flush_lsn) >= here.lsn FROM pg_stat_get_wal_senders() WHERE sync_state IN ('sync', 'quorum'))
FROM here

-- name: fence
-- A record of the log that nobody reads. The commit waits for no standby: who has it is asked for after.
SELECT set_config('synchronous_commit', 'local', true) || pg_logical_emit_message(true, 'holdfast', '')

-- name: timeline
-- Of a standby the timeline of the last that it has received and flushed, NULL where it receives nothing.
SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN (SELECT received_tli::bigint FROM pg_stat_wal_receiver)
       ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint END

-- name: setup
SELECT current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'), current_setting('full_page_writes'),
       CASE WHEN pg_is_in_recovery() THEN 'standby' WHEN current_setting('transaction_read_only') = 'on'
            THEN 'default_transaction_read_only' END,
       (SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class
        WHERE relnamespace = to_regnamespace(%s) AND relpersistence <> 'p' AND relkind IN ('r', 'p')),
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE
            (CASE WHEN current_setting('synchronous_commit') = 'off'
             THEN pg_current_wal_insert_lsn() ELSE pg_current_wal_flush_lsn() END)::text || '@' || ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint END,
       CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN 'yes' END

-- name: whose
-- From the tables, not by to_regclass: that may answer from a cache which is older than the lock
-- that a migration has just waited for.
SELECT pg_is_in_recovery(),
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = %s AND c.relname = 'holdfast_schema'),
       EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)

-- name: version
SELECT max(version) FROM {schema}.holdfast_schema

-- name: migration_lock
-- Until the end of the transaction, so that it also works through a bouncer.
SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(hashtext('holdfast migration'))

-- name: may_change
-- Asked before the locks: who may write may also wait for them, and holds up all who come after.
SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = '{schema}.sessions'::regclass

-- name: tables_lock
SET LOCAL lock_timeout = '1s';
LOCK TABLE {schema}.sessions, {schema}.messages, {schema}.keys IN ACCESS EXCLUSIVE MODE

-- name: system
SELECT system_identifier::text FROM pg_control_system()
