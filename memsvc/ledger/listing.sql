-- name: jobs
-- In the order of the key, so that a page begins where the last one ended. A filter that is null lets everything through.
select j.source_id, s.label as source, j.store, j.kind, j.job_key, j.store = 'memsvc' as live, j.status, j.stop_reason,
    j.priority, j.attempts, j.retry_remaining, j.input_watermark, j.last_success_watermark, j.worker_id, j.started_at,
    j.finished_at, j.lease_until, j.retry_at, j.not_before, j.due_at, j.last_error
from memsvc.jobs j
join memsvc.sources s on s.tenant_id = j.tenant_id and s.id = j.source_id
where j.tenant_id = memsvc.current_tenant()
  and (%(kind)s::text is null or j.kind = %(kind)s)
  and (%(job_key)s::text is null or j.job_key = %(job_key)s)
  and (%(status)s::text is null or j.status = %(status)s)
  and (%(source)s::text is null or s.label = %(source)s)
  and (%(store)s::text is null or j.store = %(store)s)
  and (%(live)s::boolean is null or (j.store = 'memsvc') = %(live)s)
  and (%(after_source_id)s::uuid is null or (j.source_id, j.store, j.kind, j.job_key)
    > (%(after_source_id)s, %(after_store)s, %(after_kind)s, %(after_job_key)s))
order by j.source_id, j.store, j.kind, j.job_key
limit %(limit)s;

-- name: not_done
select j.source_id, j.store, j.kind, j.job_key
from memsvc.jobs j
join memsvc.sources s on s.tenant_id = j.tenant_id and s.id = j.source_id
where j.tenant_id = memsvc.current_tenant()
  and (%(kind)s::text is null or j.kind = %(kind)s)
  and (%(job_key)s::text is null or j.job_key = %(job_key)s)
  and (%(status)s::text is null or j.status = %(status)s)
  and (%(source)s::text is null or s.label = %(source)s)
  and (%(store)s::text is null or j.store = %(store)s)
  and (%(live)s::boolean is null or (j.store = 'memsvc') = %(live)s)
  and j.status <> 'done'
order by j.source_id, j.store, j.kind, j.job_key;

-- name: labels
select id, label
from memsvc.sources
where tenant_id = memsvc.current_tenant()
order by id;

-- name: attempts
select started_at, ended_at, outcome, worker_id, error
from memsvc.job_attempts
where tenant_id = memsvc.current_tenant()
  and (source_id, store, kind, job_key) = (%(source_id)s, %(store)s, %(kind)s, %(job_key)s)
order by started_at desc, ended_at desc, ownership_token
limit %(limit)s;
