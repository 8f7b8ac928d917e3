-- name: enqueue
insert into memsvc.jobs (
    tenant_id, source_id, store, kind, job_key, scope_id, status, retry_remaining, input_watermark, priority, not_before)
select memsvc.current_tenant(), given.source_id, 'memsvc', given.kind, given.job_key, given.scope_id, 'pending',
    %(retries)s, 1, %(priority)s, now()
from json_to_recordset(%(rows)s::json) as given (source_id uuid, kind text, job_key text, scope_id uuid)
order by given.source_id, given.kind, given.job_key
on conflict on constraint jobs_pkey do update set
    status = case when jobs.status = 'running' then 'running' else 'pending' end,
    input_watermark = coalesce(jobs.input_watermark, 0) + 1,
    scope_id = excluded.scope_id,
    priority = case when jobs.status = 'done' then excluded.priority else greatest(jobs.priority, excluded.priority) end,
    not_before = case when jobs.status in ('running', 'pending') then jobs.not_before else now() end,
    retry_at = case when jobs.status = 'running' then jobs.retry_at end,
    retry_remaining = excluded.retry_remaining,
    attempts = case when jobs.status = 'running' then jobs.attempts else 0 end,
    stop_reason = null;

-- name: claim
-- The most urgent due jobs of a kind. The table derives due_at: not_before while pending, retry_at after an error,
-- lease_until while running, so a job left behind by a dead worker comes back by itself and one partial index serves all.
-- A lease is live while lease_until is later than now: due_at <= now() is its exact opposite. One kind, in
-- exactly the order of the index: otherwise each claim would read and sort the whole backlog.
with candidate as (
    select j.tenant_id, j.source_id, j.store, j.kind, j.job_key, j.status, j.ownership_token, j.worker_id, j.started_at,
        j.due_at
    from memsvc.jobs j
    where j.tenant_id = memsvc.current_tenant()
      and j.kind = %(kind)s
      and j.store = 'memsvc'
      and j.status <> 'done'
      and j.due_at <= now()
    order by j.priority desc, j.due_at, j.source_id, j.job_key
    limit %(limit)s
    for update skip locked
),
lost as (
    insert into memsvc.job_attempts (
        tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, outcome, error)
    select c.tenant_id, c.source_id, c.store, c.kind, c.job_key, c.ownership_token, c.worker_id,
        coalesce(c.started_at, now()), 'lost', 'the lease expired'
    from candidate c
    where c.status = 'running'
),
taken as (
    update memsvc.jobs as j set
        status = 'running',
        worker_id = %(worker_id)s,
        ownership_token = gen_random_uuid()::text,
        started_at = now(),
        finished_at = null,
        lease_until = now() + %(lease_for)s,
        retry_at = null,
        last_error = null,
        attempts = j.attempts + 1
    from candidate c
    where (j.tenant_id, j.source_id, j.store, j.kind, j.job_key)
        = (c.tenant_id, c.source_id, c.store, c.kind, c.job_key)
    returning j.source_id, j.kind, j.job_key, j.ownership_token, j.worker_id, j.lease_until, j.input_watermark,
        j.attempts, j.retry_remaining, j.priority, c.due_at
)
select source_id, kind, job_key, ownership_token, worker_id, lease_until, input_watermark, attempts, retry_remaining
from taken
order by priority desc, due_at, source_id, job_key;

-- name: heartbeat
update memsvc.jobs set
    lease_until = now() + %(lease_for)s
where source_id = %(source_id)s
  and store = 'memsvc'
  and kind = %(kind)s
  and job_key = %(job_key)s
  and status = 'running'
  and ownership_token = %(ownership_token)s;

-- name: complete
-- Newer input than the lease was given means that there is more to do: pending at once, with all retries.
with ended as (
    update memsvc.jobs set
        status = case when input_watermark > %(input_watermark)s then 'pending' else 'done' end,
        not_before = case when input_watermark > %(input_watermark)s then now() else not_before end,
        finished_at = now(),
        lease_until = null,
        last_error = null,
        attempts = 0,
        last_success_watermark = greatest(last_success_watermark, %(input_watermark)s)
    where source_id = %(source_id)s
      and store = 'memsvc'
      and kind = %(kind)s
      and job_key = %(job_key)s
      and status = 'running'
      and ownership_token = %(ownership_token)s
    returning tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at
)
insert into memsvc.job_attempts (
    tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, outcome)
select tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, 'done'
from ended;

-- name: fail
-- It was the old input that failed: newer input is tried at once, with all retries.
with ended as (
    update memsvc.jobs set
        status = case when input_watermark > %(input_watermark)s then 'pending' else 'error' end,
        not_before = case when input_watermark > %(input_watermark)s then now() else not_before end,
        finished_at = now(),
        lease_until = null,
        retry_remaining = case
            when input_watermark > %(input_watermark)s then retry_remaining else greatest(retry_remaining - 1, 0) end,
        retry_at = case
            when input_watermark > %(input_watermark)s then null
            when retry_remaining > 1 then now() + %(retry_in)s end,
        stop_reason = case
            when input_watermark > %(input_watermark)s then null
            when retry_remaining > 1 then null
            else 'exhausted' end,
        attempts = case when input_watermark > %(input_watermark)s then 0 else attempts end,
        last_error = %(error)s
    where source_id = %(source_id)s
      and store = 'memsvc'
      and kind = %(kind)s
      and job_key = %(job_key)s
      and status = 'running'
      and ownership_token = %(ownership_token)s
    returning tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at
)
insert into memsvc.job_attempts (
    tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, outcome, error)
select tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, 'error', %(error)s
from ended;

-- name: release
with ended as (
    update memsvc.jobs set
        status = 'pending',
        not_before = now(),
        lease_until = null,
        attempts = greatest(attempts - 1, 0)
    where source_id = %(source_id)s
      and store = 'memsvc'
      and kind = %(kind)s
      and job_key = %(job_key)s
      and status = 'running'
      and ownership_token = %(ownership_token)s
    returning tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at
)
insert into memsvc.job_attempts (
    tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, outcome)
select tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, 'released'
from ended;

-- name: runnable
select count(*)
from memsvc.jobs
where kind = any (%(kinds)s::text[])
  and store = 'memsvc'
  and status <> 'done'
  and due_at <= now();
