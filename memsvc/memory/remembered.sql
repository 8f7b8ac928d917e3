-- name: remember
-- A fact names its evidence at once; the row itself follows in the same transaction, which the deferred key allows.
insert into memsvc.memories (
    tenant_id, scope_id, kind, status, origin, text, context, text_sha256, author_id, source_id, session, ordinal,
    speaker, observed_at, said_at, valid_from, valid_until, idempotency_key, fact_evidence_id)
select memsvc.current_tenant(), %(scope_id)s, %(kind)s, %(status)s, %(origin)s, %(text)s, %(context)s,
    %(text_sha256)s, memsvc.current_principal(), s.id, %(session)s, %(ordinal)s, %(speaker)s,
    %(observed_at)s::timestamptz, coalesce(%(observed_at)s::timestamptz, now()), %(valid_from)s::timestamptz, %(valid_until)s::timestamptz, %(idempotency_key)s,
    case when %(status)s = 'fact' then gen_random_uuid() end
from memsvc.sources s
where s.importer = 'memsvc'
  and s.label = 'local'
on conflict (tenant_id, scope_id, text_sha256, coalesce(session, ''), coalesce(ordinal, -1), coalesce(speaker, ''))
    where retired_at is null and rule_set is null
    do nothing
returning id, true as created, source_id, scope_id, text_sha256;

-- name: add_word
-- The author's own word: what a person says earns a fact, what an agent says is its session's output.
insert into memsvc.evidence (tenant_id, memory_id, id, scope_id, kind, locator, sha256, quote, added_by)
select m.tenant_id, m.id, coalesce(m.fact_evidence_id, gen_random_uuid()), m.scope_id,
    case when m.origin = 'human' then 'person' else 'session_output' end,
    jsonb_strip_nulls(jsonb_build_object(
        'principal', p.name, 'session', m.session, 'ordinal', m.ordinal, 'speaker', m.speaker)),
    %(evidence_sha256)s, null, m.author_id
from memsvc.memories m
join memsvc.principals p on p.tenant_id = m.tenant_id and p.id = m.author_id
where m.id = %(memory_id)s;

-- name: said_before
select m.id, false as created, m.source_id, m.scope_id, m.text_sha256
from memsvc.memories m
where m.scope_id = %(scope_id)s
  and m.text_sha256 = %(text_sha256)s
  and coalesce(m.session, '') = coalesce(%(session)s::text, '')
  and coalesce(m.ordinal, -1) = coalesce(%(ordinal)s::bigint, -1)
  and coalesce(m.speaker, '') = coalesce(%(speaker)s::text, '')
  and m.retired_at is null
  and m.rule_set is null;

-- name: by_idempotency_key
select m.id, false as created, m.source_id, m.scope_id, m.text_sha256
from memsvc.memories m
where m.author_id = memsvc.current_principal()
  and m.idempotency_key = %(idempotency_key)s;

-- name: get
select m.id, m.text, m.context, m.kind, m.status, m.origin,
    case when sc.kind = 'global' then 'global' else sc.kind || ':' || sc.name end as scope,
    p.name as author, s.importer, s.label as source, m.store, m.thread_id, t.rollout_path, o.source_updated_at,
    m.rule_set, m.session, m.ordinal, m.speaker, m.observed_at, m.valid_from, m.valid_until, m.recorded_at,
    m.retired_at, m.retired_because, m.superseded_by
from memsvc.memories m
join memsvc.scopes sc on sc.tenant_id = m.tenant_id and sc.id = m.scope_id
join memsvc.sources s on s.tenant_id = m.tenant_id and s.id = m.source_id
left join memsvc.principals p on p.tenant_id = m.tenant_id and p.id = m.author_id
left join memsvc.threads t on t.tenant_id = m.tenant_id and t.source_id = m.source_id and t.id = m.thread_id
left join memsvc.stage1_outputs o
    on o.tenant_id = m.tenant_id and o.source_id = m.source_id and o.store = m.store and o.thread_id = m.thread_id
where m.id = %(id)s;

-- name: evidence
select e.id, e.kind, e.locator, e.sha256, e.quote, e.added_at
from memsvc.evidence e
where e.memory_id = %(id)s
order by e.added_at, e.id;
