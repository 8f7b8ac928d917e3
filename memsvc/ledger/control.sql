-- name: retry
-- A live job is its own twin. Of history, the row stays as it is, and a live job begins from its watermarks; of two
-- stores with the same key, from the one that had got further.
insert into memsvc.jobs as j (
    tenant_id, source_id, store, kind, job_key, scope_id, status, retry_remaining, input_watermark,
    last_success_watermark, priority, not_before)
select distinct on (c.source_id, c.kind, c.job_key) c.tenant_id, c.source_id, 'memsvc', c.kind, c.job_key, c.scope_id,
    'pending', %(retries)s, coalesce(c.input_watermark, 0), c.last_success_watermark, c.priority, now()
from json_to_recordset(%(rows)s::json) as given (source_id uuid, store text, kind text, job_key text)
join memsvc.jobs c
    on c.tenant_id = memsvc.current_tenant()
    and (c.source_id, c.store, c.kind, c.job_key) = (given.source_id, given.store, given.kind, given.job_key)
order by c.source_id, c.kind, c.job_key, c.input_watermark desc nulls last, c.store
on conflict on constraint jobs_pkey do update set
    status = 'pending',
    not_before = now(),
    retry_at = null,
    retry_remaining = excluded.retry_remaining,
    attempts = 0,
    stop_reason = null
where j.status = 'error' or (j.status = 'pending' and j.due_at > now())
returning j.source_id, j.store, j.kind, j.job_key, pg_notify('memsvc_jobs', j.kind);

-- name: cancel
-- Its owner, if it has one, finds out at the next heartbeat or at the end.
with owned as (
    select j.tenant_id, j.source_id, j.store, j.kind, j.job_key, j.status, j.ownership_token, j.worker_id, j.started_at
    from json_to_recordset(%(rows)s::json) as given (source_id uuid, kind text, job_key text)
    join memsvc.jobs j
        on j.tenant_id = memsvc.current_tenant()
        and (j.source_id, j.store, j.kind, j.job_key) = (given.source_id, 'memsvc', given.kind, given.job_key)
    where j.status <> 'done'
      and j.stop_reason is null
    order by j.source_id, j.kind, j.job_key
    for update of j
),
ended as (
    insert into memsvc.job_attempts (
        tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, outcome)
    select tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, coalesce(started_at, now()),
        'cancelled'
    from owned
    where status = 'running'
)
update memsvc.jobs as j set
    status = 'error',
    stop_reason = 'cancelled',
    lease_until = null,
    retry_at = null,
    finished_at = now()
from owned
where (j.tenant_id, j.source_id, j.store, j.kind, j.job_key)
    = (owned.tenant_id, owned.source_id, owned.store, owned.kind, owned.job_key)
returning j.source_id, j.store, j.kind, j.job_key;
