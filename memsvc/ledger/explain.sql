-- name: around
-- The way to switch a kind on is a statement, since no command does it.
select now() as now,
    (select j.status
        from memsvc.jobs j
        where j.tenant_id = memsvc.current_tenant()
          and j.source_id = %(source_id)s
          and j.store = 'memsvc'
          and j.kind = %(kind)s
          and j.job_key = %(job_key)s) as twin_status,
    format('update memsvc.job_kinds set enabled = true where kind = %%L', %(kind)s::text) as switch_on;

-- name: workers
-- Of other logins only a superuser sees anything, and behind a pooler nobody does.
select count(*)
from pg_stat_activity
where datname = current_database()
  and application_name = %(application_name)s;
