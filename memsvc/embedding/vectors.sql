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

-- name: add
with given as materialized (
    select *
    from json_to_recordset(%(rows)s::json) as g (
        scope_id uuid, memory_id uuid, view text, starts_at integer, ends_at integer, text_sha256 bytea,
        dimension integer, embedding halfvec)
),
added as (
    insert into memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at, text_sha256)
    select memsvc.current_tenant(), g.scope_id, g.memory_id, g.view, g.starts_at, g.ends_at, g.text_sha256
    from given g
    on conflict on constraint chunks_pkey do nothing
)
insert into memsvc.chunk_embeddings (
    tenant_id, scope_id, model, memory_id, view, starts_at, ends_at, dimension, embedding)
select memsvc.current_tenant(), g.scope_id, %(model)s, g.memory_id, g.view, g.starts_at, g.ends_at, g.dimension, g.embedding
from given g
on conflict on constraint chunk_embeddings_pkey do nothing;

-- name: windows
-- Of one session output or file, or of a memory and its neighbours. A line that came later may share its ordinal with another:
-- the newest stands for both.
with target as (
    select m.tenant_id, m.id
    from memsvc.memories m
    where m.source_id = %(source_id)s::uuid
      and m.store = %(store)s::text
      and m.document = %(document)s::text
      and m.session is not null
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
select m.id, m.scope_id, m.text, m.context, m.speaker, m.observed_at, b.id, b.speaker, b.text, a.id, a.speaker, a.text,
    k.text_sha256
from target t
join memsvc.memories m on m.tenant_id = t.tenant_id and m.id = t.id
left join lateral (
    select n.id, n.speaker, n.text
    from memsvc.memories n
    where n.tenant_id = m.tenant_id and n.scope_id = m.scope_id and n.source_id = m.source_id
      and n.session = m.session and n.ordinal = m.ordinal - 1 and n.retired_at is null
    order by n.recorded_at desc, n.id
    limit 1
) b on true
left join lateral (
    select n.id, n.speaker, n.text
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

-- name: standing
-- Those that are current, held until the vectors are written. One that is being retired is passed over, not waited for:
-- whoever retires it has the windows made anew.
select id
from memsvc.memories
where id = any (%(ids)s::uuid[])
  and retired_at is null
for share skip locked;

-- name: drop_window_vectors
-- Of this model, and of others where the new window takes the place of the one they were made from.
delete from memsvc.chunk_embeddings e
using json_to_recordset(%(windows)s::json) as g (scope_id uuid, memory_id uuid, ends_at integer, text_sha256 bytea)
join memsvc.chunks c
    on c.scope_id = g.scope_id
    and c.memory_id = g.memory_id
    and c.view = 'window'
    and c.text_sha256 <> g.text_sha256
where e.tenant_id = c.tenant_id
  and e.scope_id = c.scope_id
  and e.memory_id = c.memory_id
  and e.view = c.view
  and e.starts_at = c.starts_at
  and e.ends_at = c.ends_at
  and (e.model = %(model)s or e.ends_at = g.ends_at);

-- name: drop_windows
delete from memsvc.chunks c
using json_to_recordset(%(windows)s::json) as g (scope_id uuid, memory_id uuid, ends_at integer, text_sha256 bytea)
where c.scope_id = g.scope_id
  and c.memory_id = g.memory_id
  and c.view = 'window'
  and c.text_sha256 <> g.text_sha256
  and not exists (
    select from memsvc.chunk_embeddings e
    where e.tenant_id = c.tenant_id
      and e.scope_id = c.scope_id
      and e.memory_id = c.memory_id
      and e.view = c.view
      and e.starts_at = c.starts_at
      and e.ends_at = c.ends_at);

-- name: missing
select count(*)
from memsvc.memories m
where m.retired_at is null
  and not exists (
    select 1 from memsvc.chunk_embeddings e
    where e.tenant_id = m.tenant_id
      and e.scope_id = m.scope_id
      and e.model = %(model)s
      and e.memory_id = m.id
      and e.view = 'own');

-- name: lacking
-- Session outputs and remembered memories of which the model lacks a vector: an own one, or that of a window which
-- another model has. Left out is what still has a job before it, what stopped in error with this very model, and what a
-- job of the model has looked at since the last input came in: it cannot have more, as an output with too many chunks.
-- (That job began after the last one of any model was done, so it saw all that was new.)
select l.source_id, l.job_key, l.scope_id
from (
    select distinct on (m.source_id, k.job_key) m.tenant_id, m.source_id, k.job_key, m.scope_id
    from memsvc.memories m
    cross join lateral (select coalesce(m.store || '/' || m.document, m.id::text) as job_key) k
    where m.retired_at is null
      and (
        not exists (
            select 1 from memsvc.chunk_embeddings e
            where e.tenant_id = m.tenant_id
              and e.scope_id = m.scope_id
              and e.model = %(model)s
              and e.memory_id = m.id
              and e.view = 'own')
        or exists (
            select 1 from memsvc.chunks c
            where c.tenant_id = m.tenant_id
              and c.scope_id = m.scope_id
              and c.memory_id = m.id
              and c.view = 'window'
              and not exists (
                select 1 from memsvc.chunk_embeddings e
                where e.tenant_id = c.tenant_id
                  and e.scope_id = c.scope_id
                  and e.model = %(model)s
                  and e.memory_id = c.memory_id
                  and e.view = 'window')))
    order by m.source_id, k.job_key, m.scope_id
) l
join memsvc.embedding_models n on n.name = %(model)s
left join memsvc.jobs given
    on given.tenant_id = l.tenant_id and given.source_id = l.source_id and given.store = 'memsvc'
    and given.kind = %(any_model)s and given.job_key = l.job_key
left join memsvc.jobs own
    on own.tenant_id = l.tenant_id and own.source_id = l.source_id and own.store = 'memsvc'
    and own.kind = %(this_model)s and own.job_key = l.job_key
where (given.status is null or given.status = 'done' or given.stop_reason is not null)
  and (own.status is null
    or (own.status = 'done' and own.started_at <= greatest(given.finished_at, n.added_at)))
order by l.source_id, l.job_key
limit %(limit)s;

-- name: beyond
-- Of what recall searches: memories without vectors in outputs that have as many chunks as one may have.
with without as (
    select m.tenant_id, m.source_id, m.store, m.document, count(*) as memories
    from memsvc.recallable m
    where m.hidden_because is null
      and m.document is not null
      and not exists (
        select 1 from memsvc.chunk_embeddings e
        where e.tenant_id = m.tenant_id
          and e.scope_id = m.scope_id
          and e.model = %(model)s
          and e.memory_id = m.id
          and e.view = 'own')
    group by m.tenant_id, m.source_id, m.store, m.document
)
select count(*), coalesce(sum(w.memories), 0)::bigint
from without w
where %(most)s <= (
    select count(*)
    from memsvc.memories m
    join memsvc.chunk_embeddings e
        on e.tenant_id = m.tenant_id
        and e.scope_id = m.scope_id
        and e.model = %(model)s
        and e.memory_id = m.id
        and e.view = 'own'
    where m.tenant_id = w.tenant_id
      and m.source_id = w.source_id
      and m.store = w.store
      and m.document = w.document
      and m.retired_at is null);

-- name: models
select m.name, m.dimension, c.embedded, c.total
from memsvc.embedding_models m
cross join lateral memsvc.coverage(m.name, %(scopes)s::uuid[], false) c
order by m.name;

-- name: count_vectors
select count(*)
from memsvc.chunk_embeddings
where model = %(model)s;

-- name: drop_some
select memsvc.drop_model(%(model)s, %(most)s);
