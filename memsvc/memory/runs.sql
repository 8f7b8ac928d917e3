-- name: start
insert into memsvc.import_runs (tenant_id, source_id, path, status, backend_pid)
values (memsvc.current_tenant(), %(source_id)s, %(path)s, 'running', pg_backend_pid())
returning id;

-- name: checkpoint
update memsvc.import_runs set
    last_watermark = %(watermark)s,
    counts = %(counts)s,
    backend_pid = pg_backend_pid(),
    updated_at = now()
where id = %(run_id)s;

-- name: finish
update memsvc.import_runs set
    status = 'complete',
    counts = %(counts)s,
    failures = %(failures)s,
    warnings = %(warnings)s,
    last_success_at = now(),
    updated_at = now()
where id = %(run_id)s;

-- name: recent
-- Behind a pooler a connection outlives its client; a newer run of the source is the sign then.
select r.id, s.label as source, r.path,
    case
        when r.status = 'running' and (
            not exists (select 1 from pg_stat_activity a where a.pid = r.backend_pid)
            or exists (
                select 1 from memsvc.import_runs newer
                where newer.tenant_id = r.tenant_id
                  and newer.source_id = r.source_id
                  and newer.started_at > r.updated_at))
        then 'interrupted' else r.status
    end as status,
    r.last_watermark, r.last_success_at, r.counts, r.failures,
    r.warnings, r.started_at, r.updated_at
from memsvc.import_runs r
join memsvc.sources s on s.tenant_id = r.tenant_id and s.id = r.source_id
order by r.started_at desc, r.id
limit %(limit)s;

-- name: reject
-- A table without a key may hold the same row many times; it is kept once.
insert into memsvc.import_rejects (
    tenant_id, source_id, store, table_name, row_key, row_sha256, reason, row_values)
select distinct on (given.store, given.table_name, given.row_key, given.row_sha256)
    (select memsvc.current_tenant()), %(source_id)s, given.store, given.table_name, given.row_key, given.row_sha256,
    given.reason, given.row_values
from json_to_recordset(%(rows)s::json) as given (
    store text, table_name text, row_key text, row_sha256 bytea, reason text, row_values jsonb)
order by given.store, given.table_name, given.row_key, given.row_sha256, given.reason
on conflict on constraint import_rejects_pkey do update set
    row_values = excluded.row_values
where not %(exact)s;

-- name: progress
insert into memsvc.consolidation_progress (tenant_id, source_id, store, max_thread_count)
select (select memsvc.current_tenant()), %(source_id)s, given.store, given.max_thread_count
from json_to_recordset(%(rows)s::json) as given (store text, max_thread_count bigint)
on conflict on constraint consolidation_progress_pkey do update set
    max_thread_count = greatest(consolidation_progress.max_thread_count, excluded.max_thread_count);
