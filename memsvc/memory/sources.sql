-- name: lock_sources
-- Two first imports of one home at once must end in one source.
select pg_advisory_xact_lock(hashtextextended('memsvc.sources ' || memsvc.current_tenant()::text || %(importer)s, 0));

-- name: lock_source
select pg_advisory_xact_lock(hashtextextended('memsvc.source ' || %(source_id)s::uuid::text, 0));

-- name: labelled
select id, importer, label, home
from memsvc.sources
where label = %(label)s;

-- name: labels
select label
from memsvc.sources
order by label;

-- name: matching
select s.id, s.importer, s.label, s.home
from memsvc.sources s
where s.importer = %(importer)s
  and (s.home is null or %(home)s::text is null or s.home = %(home)s::text)
  and (
    -- An import that has written no row yet, whether it goes on beside this one or was killed.
    s.exported_at is null and (s.home = %(home)s::text or exists (
        select 1 from memsvc.import_runs r
        where r.tenant_id = s.tenant_id and r.source_id = s.id and r.path = %(path)s))
    or exists (
        select 1 from memsvc.threads t
        where t.tenant_id = s.tenant_id and t.source_id = s.id and t.id = any (%(thread_ids)s::text[]))
    or exists (
        select 1 from memsvc.stage1_outputs o
        where o.tenant_id = s.tenant_id and o.source_id = s.id and o.thread_id = any (%(thread_ids)s::text[])))
order by s.label;

-- name: add
insert into memsvc.sources (tenant_id, importer, label, home, host)
values (memsvc.current_tenant(), %(importer)s, %(label)s, %(home)s, %(host)s)
returning id, importer, label, home;

-- name: saw_export
update memsvc.sources set
    exported_at = greatest(exported_at, %(exported_at)s::timestamptz),
    home = coalesce(home, %(home)s::text)
where id = %(source_id)s;

-- name: is_newest
select coalesce(%(exported_at)s::timestamptz >= s.exported_at, s.exported_at is null)
from memsvc.sources s
where s.id = %(source_id)s;

-- name: summaries
select s.label, s.importer, s.home, s.exported_at,
    (select count(*) from memsvc.stage1_outputs o where o.tenant_id = s.tenant_id and o.source_id = s.id) as outputs,
    (select count(*) from memsvc.memories m
        where m.tenant_id = s.tenant_id and m.source_id = s.id and memsvc.is_current(m)) as memories
from memsvc.sources s
order by s.label;
