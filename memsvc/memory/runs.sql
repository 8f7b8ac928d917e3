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

-- name: remember_state
update memsvc.import_runs set
    request_sha256 = %(request)s,
    state_sha256 = %(state)s,
    stores = %(stores)s
where id = %(run_id)s;

-- name: earlier
select r.source_id, s.label, r.stores, r.counts, r.failures, r.warnings, r.state_sha256
from memsvc.import_runs r
join memsvc.sources s on s.tenant_id = r.tenant_id and s.id = r.source_id
where r.request_sha256 = %(request)s
order by r.started_at desc, r.id
limit 1;

-- name: state
-- Every row by its hash, the projects that sessions lie in, and all names of projects, by which sessions may move. Files
-- are derived from at every import, so how many memories there are counts for them.
select sha256(
    convert_to(concat_ws('|', s.label, s.home, extract(epoch from s.exported_at), (
        select concat_ws('|', count(*), count(m.retired_at)) from memsvc.memories m
        where m.tenant_id = s.tenant_id and m.source_id = s.id
          and exists (select 1 from memsvc.source_files f where f.tenant_id = s.tenant_id and f.source_id = s.id))), 'UTF8')
    || coalesce((
        select string_agg(o.row_sha256 || uuid_send(o.scope_id), '' order by o.store, o.thread_id)
        from memsvc.stage1_outputs o where o.tenant_id = s.tenant_id and o.source_id = s.id), '')
    || '|'::bytea || coalesce((
        select string_agg(t.row_sha256 || uuid_send(t.scope_id) || boolsend(t.deleted), '' order by t.id)
        from memsvc.threads t where t.tenant_id = s.tenant_id and t.source_id = s.id), '')
    || '|'::bytea || coalesce((
        select string_agg(j.row_sha256, '' order by j.store, j.kind, j.job_key)
        from memsvc.jobs j where j.tenant_id = s.tenant_id and j.source_id = s.id and j.store <> 'memsvc'), '')
    || '|'::bytea || coalesce((
        select string_agg(f.sha256 || convert_to(f.path, 'UTF8'), '' order by f.path)
        from memsvc.source_files f where f.tenant_id = s.tenant_id and f.source_id = s.id), '')
    || '|'::bytea || coalesce((
        select string_agg(r.row_sha256, '' order by r.store, r.table_name, r.row_key, r.row_sha256)
        from memsvc.import_rejects r where r.tenant_id = s.tenant_id and r.source_id = s.id), '')
    || '|'::bytea || coalesce((
        select string_agg(convert_to(concat(p.store, p.max_thread_count), 'UTF8'), '' order by p.store)
        from memsvc.consolidation_progress p where p.tenant_id = s.tenant_id and p.source_id = s.id), '')
    || '|'::bytea || coalesce((
        select string_agg(convert_to(concat_ws('|', a.kind, a.host, a.value, a.scope_id), 'UTF8'), ''
            order by a.kind, a.host, a.value)
        from memsvc.scope_aliases a where a.tenant_id = s.tenant_id), ''))
from memsvc.sources s
where s.id = %(source_id)s;

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
