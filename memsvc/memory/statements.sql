-- name: known
-- was_decided: somebody retired it, so it must not come back; what derivation retired names nobody.
select m.id, m.store, m.document, m.thread_id, m.text_sha256, m.occurrence, m.life, m.kind, m.status, m.context, m.scope_id,
    m.retired_at is not null as is_retired, m.retired_by is not null as was_decided
from json_to_recordset(%(keys)s::json) as given (store text, document text)
join memsvc.memories m
    on m.source_id = %(source_id)s
    and m.store = given.store
    and m.document = given.document
order by m.store, m.document, m.text_sha256, m.occurrence, m.life;

-- name: count_current
select count(*)
from memsvc.memories
where source_id = %(source_id)s
  and rule_set is not null
  and retired_at is null;

-- name: folders
select id, cwd
from memsvc.threads
where source_id = %(source_id)s
  and id = any (%(thread_ids)s::text[])
  and cwd is not null
order by id;

-- name: retire
-- A row that was retired before keeps its time and reason; only its successor is new.
update memsvc.memories as m set
    retired_at = coalesce(m.retired_at, now()),
    retired_because = coalesce(m.retired_because,
        case when given.superseded_by is null then 'the line is gone' else 'classified anew' end),
    superseded_by = coalesce(m.superseded_by, given.superseded_by)
from json_to_recordset(%(rows)s::json) as given (id uuid, superseded_by uuid)
where m.id = given.id;

-- name: add
-- What a file says of no session with an output was said when the export was made.
insert into memsvc.memories (
    tenant_id, id, scope_id, kind, status, origin, text, context, text_sha256, author_id, source_id, store, thread_id,
    path, rule_set, occurrence, life, session, ordinal, said_at)
select (select memsvc.current_tenant()), given.id, given.scope_id, given.kind, given.status, 'imported', given.text,
    given.context, given.text_sha256, %(principal_id)s, %(source_id)s, given.store, given.thread_id, given.path,
    given.rule_set, given.occurrence, given.life, given.session, given.ordinal,
    coalesce(o.source_updated_at, s.exported_at, now())
from json_to_recordset(%(rows)s::json) as given (
    id uuid, scope_id uuid, kind text, status text, text text, context text, text_sha256 bytea, store text,
    thread_id text, path text, rule_set text, occurrence integer, life integer, session text, ordinal bigint)
join memsvc.sources s on s.id = %(source_id)s
left join memsvc.stage1_outputs o
    on o.source_id = %(source_id)s
    and o.store = given.store
    and o.thread_id = given.thread_id;

-- name: place
-- The place follows the line; a row whose place is the same is left alone.
insert into memsvc.evidence (tenant_id, memory_id, id, scope_id, kind, locator, sha256, quote, added_by)
select (select memsvc.current_tenant()), given.memory_id, given.id, given.scope_id, given.kind, given.locator,
    given.sha256, given.quote, %(principal_id)s
from json_to_recordset(%(rows)s::json) as given (
    memory_id uuid, id uuid, scope_id uuid, kind text, locator jsonb, sha256 bytea, quote text)
on conflict on constraint evidence_pkey do update set
    locator = excluded.locator,
    sha256 = excluded.sha256,
    quote = excluded.quote
where (evidence.locator, evidence.sha256, evidence.quote)
    is distinct from (excluded.locator, excluded.sha256, excluded.quote);
