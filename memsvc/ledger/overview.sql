-- name: counts
select kind, status, store = 'memsvc' as live, count(*) as jobs
from memsvc.jobs
group by kind, status, store = 'memsvc'
order by kind, live, status;

-- name: expired_leases
select count(*)
from memsvc.jobs
where store = 'memsvc'
  and status = 'running'
  and lease_until <= now();

-- name: troubles
select j.kind, j.job_key, s.label as source, j.store, j.store = 'memsvc' as live, j.status, j.retry_remaining,
    j.retry_at, j.stop_reason, j.last_error
from memsvc.jobs j
join memsvc.sources s on s.tenant_id = j.tenant_id and s.id = j.source_id
where j.status = 'error'
   or (j.status = 'running' and (j.store <> 'memsvc' or j.lease_until <= now()))
order by j.store = 'memsvc' desc, coalesce(j.finished_at, j.started_at) desc nulls last, j.kind, j.job_key
limit %(limit)s;

-- name: holders
select worker_id, kind, job_key, lease_until
from memsvc.jobs
where tenant_id = memsvc.current_tenant()
  and (%(kind)s::text is null or kind = %(kind)s)
  and store = 'memsvc'
  and status = 'running'
  and lease_until > now()
order by lease_until, source_id, kind, job_key;
