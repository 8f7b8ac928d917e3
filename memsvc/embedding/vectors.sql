-- name: dimension_of
select dimension
from memsvc.embedding_models
where name = %(name)s;

-- name: register
insert into memsvc.embedding_models (tenant_id, name, dimension, max_tokens)
values (memsvc.current_tenant(), %(name)s, %(dimension)s, %(max_tokens)s)
on conflict on constraint embedding_models_pkey do nothing;

-- name: unembedded_of_output
select m.id, m.scope_id, m.text, m.context, m.speaker, m.observed_at
from memsvc.memories m
where m.source_id = %(source_id)s
  and m.store = %(store)s
  and m.document = %(document)s
  and m.retired_at is null
  and not exists (
    select 1 from memsvc.chunk_embeddings e
    where e.tenant_id = m.tenant_id
      and e.scope_id = m.scope_id
      and e.model = %(model)s
      and e.memory_id = m.id
      and e.view = 'own')
order by m.id;

-- name: count_of_output
select count(*)
from memsvc.memories m
join memsvc.chunk_embeddings e
    on e.tenant_id = m.tenant_id
    and e.scope_id = m.scope_id
    and e.model = %(model)s
    and e.memory_id = m.id
    and e.view = 'own'
where m.source_id = %(source_id)s
  and m.store = %(store)s
  and m.document = %(document)s
  and m.retired_at is null;

-- name: unembedded_memory
select m.id, m.scope_id, m.text, m.context, m.speaker, m.observed_at
from memsvc.memories m
where m.id = %(memory_id)s
  and m.retired_at is null
  and not exists (
    select 1 from memsvc.chunk_embeddings e
    where e.tenant_id = m.tenant_id
      and e.scope_id = m.scope_id
      and e.model = %(model)s
      and e.memory_id = m.id
      and e.view = 'own');

-- name: add_chunk
insert into memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at, text_sha256)
values (memsvc.current_tenant(), %(scope_id)s, %(memory_id)s, %(view)s, %(starts_at)s, %(ends_at)s, %(text_sha256)s)
on conflict on constraint chunks_pkey do nothing;

-- name: add_vector
insert into memsvc.chunk_embeddings (
    tenant_id, scope_id, model, memory_id, view, starts_at, ends_at, dimension, embedding)
values (memsvc.current_tenant(), %(scope_id)s, %(model)s, %(memory_id)s, %(view)s, %(starts_at)s, %(ends_at)s,
    %(dimension)s, %(vector)s)
on conflict on constraint chunk_embeddings_pkey do nothing;

-- name: windows
-- Of one session output or file, or of a memory and its neighbours. A line that came later may share its ordinal with another:
-- the newest stands for both.
with target as (
    select m.tenant_id, m.id
    from memsvc.memories m
    where m.source_id = %(source_id)s::uuid
      and m.session = %(session)s::text
      and m.rule_set is not null
      and m.retired_at is null
    union
    select n.tenant_id, n.id
    from memsvc.memories m
    join memsvc.memories n
        on n.tenant_id = m.tenant_id
        and n.scope_id = m.scope_id
        and n.source_id = m.source_id
        and n.session = m.session
        and n.ordinal between m.ordinal - 1 and m.ordinal + 1
        and n.retired_at is null
    where m.id = %(memory_id)s::uuid
)
select m.id, m.scope_id, m.text, m.context, m.speaker, m.observed_at, b.speaker, b.text, a.speaker, a.text,
    k.text_sha256
from target t
join memsvc.memories m on m.tenant_id = t.tenant_id and m.id = t.id
left join lateral (
    select n.speaker, n.text
    from memsvc.memories n
    where n.tenant_id = m.tenant_id and n.scope_id = m.scope_id and n.source_id = m.source_id
      and n.session = m.session and n.ordinal = m.ordinal - 1 and n.retired_at is null
    order by n.recorded_at desc, n.id
    limit 1
) b on true
left join lateral (
    select n.speaker, n.text
    from memsvc.memories n
    where n.tenant_id = m.tenant_id and n.scope_id = m.scope_id and n.source_id = m.source_id
      and n.session = m.session and n.ordinal = m.ordinal + 1 and n.retired_at is null
    order by n.recorded_at desc, n.id
    limit 1
) a on true
left join lateral (
    select c.text_sha256
    from memsvc.chunks c
    join memsvc.chunk_embeddings e
        on e.tenant_id = c.tenant_id and e.scope_id = c.scope_id and e.model = %(model)s
        and e.memory_id = c.memory_id and e.view = c.view
        and e.starts_at = c.starts_at and e.ends_at = c.ends_at
    where c.tenant_id = m.tenant_id and c.scope_id = m.scope_id and c.memory_id = m.id and c.view = 'window'
    limit 1
) k on true
order by m.ordinal, m.id;

-- name: drop_window_vectors
-- Of every model: they were made from a window that is no more.
delete from memsvc.chunk_embeddings e
using memsvc.chunks c
where c.scope_id = %(scope_id)s
  and c.memory_id = %(memory_id)s
  and c.view = 'window'
  and c.text_sha256 <> %(text_sha256)s
  and e.tenant_id = c.tenant_id
  and e.scope_id = c.scope_id
  and e.memory_id = c.memory_id
  and e.view = c.view;

-- name: drop_window
delete from memsvc.chunks
where scope_id = %(scope_id)s
  and memory_id = %(memory_id)s
  and view = 'window'
  and text_sha256 <> %(text_sha256)s;
