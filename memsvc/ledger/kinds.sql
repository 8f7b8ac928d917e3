-- name: settings
select kind, enabled, max_running, max_attempts, longest_lease
from memsvc.job_kinds
where kind = any (%(kinds)s::text[]);

-- name: settle
insert into memsvc.job_kinds (tenant_id, kind, enabled, max_running, max_attempts, longest_lease)
select memsvc.current_tenant(), %(kind)s, %(enabled)s, %(max_running)s, %(max_attempts)s, %(longest_lease)s
on conflict on constraint job_kinds_pkey do update set
    enabled = excluded.enabled,
    max_running = excluded.max_running,
    max_attempts = excluded.max_attempts,
    longest_lease = excluded.longest_lease;
