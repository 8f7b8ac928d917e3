-- name: versions
select j.store, j.kind, j.job_key, j.started_at, j.finished_at, j.input_watermark, j.row_sha256
from json_to_recordset(%(keys)s::json) as given (store text, kind text, job_key text)
join memsvc.jobs j
    on j.source_id = %(source_id)s
    and j.store = given.store
    and j.kind = given.kind
    and j.job_key = given.job_key;

-- name: upsert
-- The caller holds the source's lock and has decided that each row is new or newer. A store that an importer names is
-- never 'memsvc', so that no imported row can become live.
insert into memsvc.jobs (
    tenant_id, source_id, store, kind, job_key, status, worker_id, ownership_token, started_at, finished_at,
    lease_until, retry_at, retry_remaining, last_error, input_watermark, last_success_watermark, extra, row_sha256)
select (select memsvc.current_tenant()), %(source_id)s, given.store, given.kind, given.job_key, given.status,
    given.worker_id, given.ownership_token, given.started_at, given.finished_at, given.lease_until, given.retry_at,
    given.retry_remaining, given.last_error, given.input_watermark, given.last_success_watermark, given.extra,
    given.row_sha256
from json_to_recordset(%(rows)s::json) as given (
    store text, kind text, job_key text, status text, worker_id text, ownership_token text, started_at timestamptz,
    finished_at timestamptz, lease_until timestamptz, retry_at timestamptz, retry_remaining bigint, last_error text,
    input_watermark bigint, last_success_watermark bigint, extra jsonb, row_sha256 bytea)
where given.store <> 'memsvc'
on conflict on constraint jobs_pkey do update set
    status = excluded.status,
    worker_id = excluded.worker_id,
    ownership_token = excluded.ownership_token,
    started_at = excluded.started_at,
    finished_at = excluded.finished_at,
    lease_until = excluded.lease_until,
    retry_at = excluded.retry_at,
    retry_remaining = excluded.retry_remaining,
    last_error = excluded.last_error,
    input_watermark = excluded.input_watermark,
    last_success_watermark = excluded.last_success_watermark,
    extra = excluded.extra,
    row_sha256 = excluded.row_sha256;
