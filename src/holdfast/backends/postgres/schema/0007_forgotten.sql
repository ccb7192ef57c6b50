-- What was forgotten does not expire: a sweep would call it expired.
UPDATE {schema}.sessions SET ttl_ms = NULL, expires_ms = NULL
WHERE state = 'forgotten' AND (ttl_ms IS NOT NULL OR expires_ms IS NOT NULL);

ALTER TABLE {schema}.sessions ADD CONSTRAINT sessions_forgotten
    CHECK (state <> 'forgotten' OR (ttl_ms IS NULL AND expires_ms IS NULL)) NOT VALID;
