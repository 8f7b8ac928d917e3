-- name: nearest
-- Coverage comes first, so that an answer without hits still says what was searched.
select c.embedded, c.total, m.id, m.text, m.context, m.kind, m.status,
    case when sc.kind = 'global' then 'global' else sc.kind || ':' || sc.name end as scope,
    r.score, r.vector_score, r.text_score, r.vector_rank, r.text_rank, r.recency_rank,
    s.importer, s.label, m.thread_id, t.rollout_path, e.locator, p.name as author, m.recorded_at, o.source_updated_at
from memsvc.coverage(%(model)s, %(scopes)s::uuid[], %(hidden)s) c
left join memsvc.recall(%(query)s, %(vector)s::halfvec, %(model)s, %(scopes)s::uuid[], %(limit)s, %(wanted)s::jsonb) r
    on true
left join memsvc.memories m on m.id = r.memory_id
left join memsvc.scopes sc on sc.tenant_id = m.tenant_id and sc.id = m.scope_id
left join memsvc.sources s on s.tenant_id = m.tenant_id and s.id = m.source_id
left join memsvc.principals p on p.tenant_id = m.tenant_id and p.id = m.author_id
left join memsvc.threads t on t.tenant_id = m.tenant_id and t.source_id = m.source_id and t.id = m.thread_id
left join memsvc.stage1_outputs o
    on o.tenant_id = m.tenant_id and o.source_id = m.source_id and o.store = m.store and o.thread_id = m.thread_id
left join lateral (
    select found.locator
    from memsvc.evidence found
    where found.tenant_id = m.tenant_id
      and found.memory_id = m.id
      and found.kind in ('session_output', 'memory_file')
    order by found.added_at, found.id
    limit 1
) e on true
order by r.score desc, m.said_at desc, m.id;

-- name: coverage
select c.embedded, c.total
from memsvc.coverage(%(model)s, %(scopes)s::uuid[], false) c;
