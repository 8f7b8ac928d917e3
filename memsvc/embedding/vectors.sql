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
  and m.thread_id = %(thread_id)s
  and m.retired_at is null
  and not exists (
    select 1 from memsvc.chunk_embeddings e
    where e.tenant_id = m.tenant_id
      and e.scope_id = m.scope_id
      and e.model = %(model)s
      and e.memory_id = m.id)
order by m.id;

-- name: count_of_output
select count(*)
from memsvc.memories m
join memsvc.chunk_embeddings e
    on e.tenant_id = m.tenant_id
    and e.scope_id = m.scope_id
    and e.model = %(model)s
    and e.memory_id = m.id
where m.source_id = %(source_id)s
  and m.store = %(store)s
  and m.thread_id = %(thread_id)s
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
      and e.memory_id = m.id);

-- name: add_chunk
insert into memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at, text_sha256)
values (memsvc.current_tenant(), %(scope_id)s, %(memory_id)s, 'own', %(starts_at)s, %(ends_at)s, %(text_sha256)s)
on conflict on constraint chunks_pkey do nothing;

-- name: add_vector
insert into memsvc.chunk_embeddings (
    tenant_id, scope_id, model, memory_id, view, starts_at, ends_at, dimension, embedding)
values (memsvc.current_tenant(), %(scope_id)s, %(model)s, %(memory_id)s, 'own', %(starts_at)s, %(ends_at)s,
    %(dimension)s, %(vector)s)
on conflict on constraint chunk_embeddings_pkey do nothing;
