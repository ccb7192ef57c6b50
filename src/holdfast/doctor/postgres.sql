-- Every query here is sent in a READ ONLY transaction of its own, under a statement timeout.

-- name: settings
-- What this role gets in this database; `source` says who set it.
SELECT name, setting, source FROM pg_settings WHERE name = ANY(%s)

-- name: self
SELECT current_user, current_database(), pg_is_in_recovery(), pg_backend_pid(),
       inet_server_port(), current_setting('server_version')

-- name: others_off
-- Roles and databases, other than this role in this database, whose commits do not wait.
SELECT coalesce(d.datname, 'every database'), coalesce(r.rolname, 'every role')
FROM pg_db_role_setting s
LEFT JOIN pg_database d ON d.oid = s.setdatabase
LEFT JOIN pg_roles r ON r.oid = s.setrole
WHERE 'synchronous_commit=off' = ANY(s.setconfig)

-- name: replicas
-- For a role without pg_monitor everything but the name and the process is NULL.
SELECT application_name, state, sync_state,
       coalesce(extract(epoch FROM replay_lag), 0)::float8,
       greatest(0, coalesce(pg_wal_lsn_diff(here.lsn, write_lsn), 0))::int8,
       greatest(0, coalesce(pg_wal_lsn_diff(here.lsn, flush_lsn), 0))::int8
FROM pg_stat_replication,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                  ELSE pg_current_wal_lsn() END AS lsn) AS here
WHERE application_name <> 'pg_basebackup'  -- a copy that is under way is no standby
ORDER BY application_name

-- name: member
-- One server of several: whether it is a standby, its timeline, how far its log is in bytes, and
-- whether it follows somebody; its timeline is NULL for a role without pg_monitor.
SELECT pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN (SELECT received_tli FROM pg_stat_wal_receiver)
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END,
       CASE WHEN pg_is_in_recovery()
            THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), '0/0') - '0/0'
            ELSE pg_current_wal_lsn() - '0/0' END::int8,
       EXISTS (SELECT FROM pg_stat_wal_receiver)

-- name: standby
-- A standby that has replayed all it received is not behind, however long the primary was idle.
SELECT CASE WHEN pg_last_wal_receive_lsn() IS NOT DISTINCT FROM pg_last_wal_replay_lsn() THEN 0
            ELSE coalesce(extract(epoch FROM now() - pg_last_xact_replay_timestamp()), 0)
       END::float8

-- name: tables
-- Ordinary tables of users: name, whether it survives a crash, its columns, its unique keys.
SELECT format('%%I.%%I', n.nspname, c.relname), c.relpersistence = 'u',
       (SELECT json_agg(json_build_object(
                   'name', a.attname, 'type', format_type(a.atttypid, NULL),
                   'generated', a.attidentity <> ''
                       OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%%')
                ORDER BY a.attnum)
        FROM pg_attribute a
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT coalesce(json_agg((
                   SELECT json_agg(k.attname) FROM pg_attribute k
                   WHERE k.attrelid = c.oid AND k.attnum = ANY(i.indkey))), '[]')
        FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\_%%' AND n.nspname <> 'information_schema'
  AND NOT EXISTS (SELECT FROM pg_class o WHERE o.relnamespace = n.oid AND o.relname = 'holdfast_schema')
ORDER BY 1 LIMIT 500

-- name: own_schema
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = %s AND c.relname = 'holdfast_schema')

-- name: unlogged
SELECT coalesce(string_agg(relname, ', ' ORDER BY relname), '') FROM pg_class
WHERE relnamespace = to_regnamespace(%s) AND relpersistence <> 'p' AND relkind IN ('r', 'p')

-- name: version
SELECT max(version) FROM {schema}.holdfast_schema

-- name: leftovers
SELECT count(*) FROM (
    SELECT FROM {schema}.sessions
    WHERE expires_ms <= {schema}.ms(now()) - 3600000 LIMIT 10000) AS expired

-- name: newest
-- The newest records of some sessions; one row without a record for a session that has none.
SELECT s.name, s.floor, s.last, f.upto, f.floor, m.seq, m.record
FROM (SELECT * FROM {schema}.sessions
      WHERE namespace = %s AND state = 'live'
        AND (expires_ms IS NULL OR expires_ms > {schema}.ms(now())) LIMIT %s) AS s
LEFT JOIN {schema}.followed f ON f.session = s.id
LEFT JOIN LATERAL (
    SELECT o.seq, o.record FROM {schema}.messages o
    WHERE o.session = s.id AND o.seq > s.floor ORDER BY o.seq DESC LIMIT %s) AS m ON true
ORDER BY s.name, m.seq
