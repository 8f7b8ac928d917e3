-- name: enqueue
-- A counted watermark is always newer than what was there; a dated one is when it is greater than the recorded one. Newer
-- input brings all retries back and passes the back-off. Older or equal input, unless that was done already, is noted
-- where the job could be claimed now, and changes nothing elsewhere.
with written as (
    insert into memsvc.jobs as j (
        tenant_id, source_id, store, kind, job_key, scope_id, status, retry_remaining, input_watermark, priority,
        not_before)
    select memsvc.current_tenant(), given.source_id, 'memsvc', given.kind, given.job_key, given.scope_id, 'pending',
        %(retries)s, given.watermark, %(priority)s, now()
    from json_to_recordset(%(rows)s::json) as given (
        source_id uuid, kind text, job_key text, scope_id uuid, watermark bigint)
    order by given.source_id, given.kind, given.job_key
    on conflict on constraint jobs_pkey do update set
        status = case when j.status = 'running' then 'running' else 'pending' end,
        input_watermark = case
            when j.kind = any (%(dated)s::text[]) then excluded.input_watermark
            else greatest(excluded.input_watermark, coalesce(j.input_watermark, 0) + 1) end,
        scope_id = excluded.scope_id,
        priority = case
            when j.status = 'done' then excluded.priority else greatest(j.priority, excluded.priority) end,
        not_before = case
            when j.status in ('running', 'pending') then j.not_before
            when j.status = 'done' then greatest(j.not_before, now())
            else now() end,
        retry_at = null,
        retry_remaining = case
            when j.kind = any (%(dated)s::text[]) and excluded.input_watermark <= j.input_watermark
            then j.retry_remaining
            else greatest(j.retry_remaining, excluded.retry_remaining) end,
        attempts = case
            when j.status = 'running'
                or (j.kind = any (%(dated)s::text[]) and excluded.input_watermark <= j.input_watermark)
            then j.attempts
            else 0 end,
        stop_reason = null
    where j.kind <> all (%(dated)s::text[])
       or ((excluded.input_watermark <= j.last_success_watermark) is not true
            and ((excluded.input_watermark <= j.input_watermark) is not true
                or (j.status = 'done' and j.retry_remaining > 0)
                or j.due_at <= now()))
    returning j.kind
),
-- Idle workers listen; what is not due yet wakes nobody for long.
told as (
    select pg_notify('memsvc_jobs', w.kind)
    from (select distinct kind from written) w
)
select (select count(*) from written) as jobs, (select count(*) from told) as kinds;

-- name: hold_caps
-- Whoever adds to the live leases of a capped kind takes turns with the others, until the transaction ends; always in
-- the same order. The lock comes in a statement of its own: what follows must see what the last holder committed.
select pg_advisory_xact_lock(hashtextextended('memsvc.jobs ' || memsvc.current_tenant() || ' ' || capped.kind, 0))
from (select kind from unnest(%(kinds)s::text[]) as kind order by kind) capped;

-- name: running
-- A lease is live while it ends later than now.
select count(*)
from memsvc.jobs
where tenant_id = memsvc.current_tenant()
  and kind = %(kind)s
  and store = 'memsvc'
  and status = 'running'
  and lease_until > now();

-- name: claim
-- The most urgent due jobs of a kind. The table derives due_at: not_before while pending, retry_at after an error,
-- lease_until while running, so a job left behind by a dead worker comes back by itself and one partial index serves all.
-- A lease is live while lease_until is later than now: due_at <= now() is its exact opposite. One kind, in
-- exactly the order of the index: otherwise each claim would read and sort the whole backlog. So would a plan that is
-- kept for any limit: the number is written into the statement. The tenant is that of the policies.
with candidate as (
    select j.tenant_id, j.source_id, j.store, j.kind, j.job_key, j.status, j.ownership_token, j.worker_id, j.started_at,
        j.due_at
    from memsvc.jobs j
    where j.kind = %(kind)s
      and j.store = 'memsvc'
      and j.status <> 'done'
      and j.due_at <= now()
    order by j.priority desc, j.due_at, j.source_id, j.job_key
    limit {limit}
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
        lease_until = now() + least(%(lease_for)s::interval, %(longest_lease)s),
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
-- Never longer in all than a lease may last. Where a kind is capped, an expired lease has given its place away: the
-- clock is asked after the lock was got.
update memsvc.jobs set
    lease_until = least(now() + %(lease_for)s, started_at + %(longest_lease)s)
where source_id = %(source_id)s
  and store = 'memsvc'
  and kind = %(kind)s
  and job_key = %(job_key)s
  and status = 'running'
  and ownership_token = %(ownership_token)s
  and started_at + %(longest_lease)s > now()
  and (lease_until > clock_timestamp() or not %(capped)s);

-- name: complete
-- Newer input than the lease was given means that there is more to do: pending, with all retries. not_before keeps how
-- long this success is enough, for that input and for whatever is enqueued later.
with given as (
    select *
    from json_to_recordset(%(leases)s::json) as g (
        source_id uuid, kind text, job_key text, ownership_token text, input_watermark bigint, rests_for interval)
),
ended as (
    update memsvc.jobs as j set
        status = case when j.input_watermark > given.input_watermark then 'pending' else 'done' end,
        not_before = now() + given.rests_for,
        finished_at = now(),
        lease_until = null,
        last_error = null,
        attempts = 0,
        last_success_watermark = greatest(j.last_success_watermark, given.input_watermark, %(watermark)s)
    from given
    where j.source_id = given.source_id
      and j.store = 'memsvc'
      and j.kind = given.kind
      and j.job_key = given.job_key
      and j.status = 'running'
      and j.ownership_token = given.ownership_token
    returning j.tenant_id, j.source_id, j.store, j.kind, j.job_key, j.ownership_token, j.worker_id, j.started_at
)
insert into memsvc.job_attempts (
    tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, outcome)
select tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, 'done'
from ended
returning ownership_token;

-- name: fail
-- It was the old input that failed: newer input is tried at once, with all retries. Without a time to wait nothing can
-- ever come of it.
with ended as (
    update memsvc.jobs set
        status = case when input_watermark > %(input_watermark)s then 'pending' else 'error' end,
        not_before = now(),
        finished_at = now(),
        lease_until = null,
        retry_remaining = case
            when input_watermark > %(input_watermark)s then retry_remaining else greatest(retry_remaining - 1, 0) end,
        retry_at = case
            when input_watermark > %(input_watermark)s then null
            when retry_remaining > 1 or not %(gives_up)s then now() + %(retry_in)s end,
        stop_reason = case
            when input_watermark > %(input_watermark)s then null
            when %(retry_in)s::interval is null then 'poison'
            when retry_remaining > 1 or not %(gives_up)s then null
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
-- Leases given back one after the other are written down once.
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
),
kept as (
    insert into memsvc.job_attempts (
        tenant_id, source_id, store, kind, job_key, ownership_token, worker_id, started_at, outcome)
    select e.tenant_id, e.source_id, e.store, e.kind, e.job_key, e.ownership_token, e.worker_id, e.started_at, 'released'
    from ended e
    where 'released' is distinct from (
        select a.outcome
        from memsvc.job_attempts a
        where (a.tenant_id, a.source_id, a.store, a.kind, a.job_key)
            = (e.tenant_id, e.source_id, e.store, e.kind, e.job_key)
        order by a.started_at desc, a.ended_at desc, a.ownership_token
        limit 1)
)
select source_id, pg_notify('memsvc_jobs', kind)
from ended;

-- name: runnable
select count(*)
from memsvc.jobs
where kind = any (%(kinds)s::text[])
  and store = 'memsvc'
  and status <> 'done'
  and due_at <= now();
