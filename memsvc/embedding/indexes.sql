-- name: due
-- Models with more vectors than are compared one by one, as far as the caller sees, and without an index that works.
select m.name, m.dimension
from memsvc.embedding_models m
cross join lateral (
    select count(*) as vectors
    from (
        select
        from memsvc.chunk_embeddings e
        where e.model = m.name
        limit %(threshold)s + 1
    ) bounded
) counted
where counted.vectors > %(threshold)s
  and not exists (select from memsvc.vector_index(m.name))
group by m.name, m.dimension
order by m.name;

-- name: claim
select pg_try_advisory_lock(hashtextextended('memsvc.vector_index ' || %(model)s, 0));
