-- Recall: candidates from vectors, from full text and from recency, fused into one order.
-- Full-text operators are not leakproof: under a policy Postgres would filter every readable row instead of using the
-- index. So candidate search alone runs as the owner; it asks who is calling itself, takes no principal, and carries the
-- scope clause inside. What it finds is read again under the policies.
set role memsvc_owner;
set search_path = memsvc, extensions, public;

-- Words of a text, one blank between: what is left of paths, identifiers and punctuation.
create function memsvc.bare_words(given text) returns text
language sql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$
    select regexp_replace(
        regexp_replace(given, '([[:lower:][:digit:]])([[:upper:]])', '\1 \2', 'g'),
        '[^[:alnum:]]+', ' ', 'g')
$$;

-- What a memory can be found by: stems, whole tokens, and the parts of identifiers. A tsvector holds at most 1 MB; the cut
-- keeps the longest text inside that.
create function memsvc.lexemes(context text, body text) returns tsvector
language sql immutable parallel safe strict
set search_path = pg_catalog, memsvc, pg_temp
as $$
    select to_tsvector('pg_catalog.english', whole)
        || to_tsvector('pg_catalog.simple', whole)
        || to_tsvector('pg_catalog.simple', memsvc.bare_words(whole))
    from (select left(context || E'\n' || body, 60000) as whole) cut
$$;

create index memories_lexemes on memsvc.memories using gin (memsvc.lexemes(context, text)) where retired_at is null;

-- The lexemes a query is looked up by: stems and plain words. Words that say nothing (English stop words) are left out
-- unless nothing else remains. At most 200, so that a pasted page cannot run away.
create function memsvc.query_lexemes(query text) returns table (lexeme text)
language sql immutable parallel safe strict
set search_path = pg_catalog, memsvc, pg_temp
as $$
    with cut as (select left(query, 20000) as whole),
    plain as (
        select u.lexeme, to_tsvector('pg_catalog.english', u.lexeme) = ''::tsvector as says_nothing
        from cut, unnest(to_tsvector('pg_catalog.simple', whole)
            || to_tsvector('pg_catalog.simple', memsvc.bare_words(whole))) u
    ),
    telling as (
        select p.lexeme from plain p where not p.says_nothing
        union
        select u.lexeme from cut, unnest(to_tsvector('pg_catalog.english', whole)) u
    )
    select t.lexeme from telling t
    union all
    select p.lexeme from plain p where not exists (select from telling)
    order by 1
    limit 200
$$;

create function memsvc.one_lexeme(lexeme text) returns tsquery
language sql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$ select ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery $$;

-- Is the row current: not retired, and true now?
create function memsvc.is_current(m memsvc.memories) returns boolean
language sql stable parallel safe
as $$
    select m.retired_at is null
        and (m.valid_from is null or m.valid_from <= now())
        and (m.valid_until is null or m.valid_until > now())
$$;

-- Any word counts, and a rare one counts more: each lexeme adds its inverse document frequency in the searched scopes.
-- It needs nothing of pgvector's schema, in which somebody else may be allowed to create better fitting operators.
create function memsvc.text_candidates(query text, searched uuid[], candidates integer)
returns table (memory_id uuid, score double precision)
language sql stable security definer rows 100
set search_path = pg_catalog, memsvc, pg_temp
as $$
    with allowed as (
        select memsvc.current_tenant() as tenant_id,
            array(select s from memsvc.permitted_scopes('read') s where s = any (searched)) as scope_ids
    ),
    size as (
        select count(*)::double precision as n
        from allowed a
        join memsvc.memories m on m.tenant_id = a.tenant_id and m.scope_id = any (a.scope_ids)
        where memsvc.is_current(m)
    ),
    matches as (
        select m.id, count(*) over (partition by q.lexeme) as df
        from allowed a
        cross join memsvc.query_lexemes(query) q
        join memsvc.memories m
            on memsvc.lexemes(m.context, m.text) @@ memsvc.one_lexeme(q.lexeme)
            and m.retired_at is null
            and m.tenant_id = a.tenant_id
            and m.scope_id = any (a.scope_ids)
        where memsvc.is_current(m)
    )
    select matches.id, sum(ln(1 + (size.n - matches.df + 0.5) / (matches.df + 0.5)))
    from matches, size
    group by matches.id
    order by 2 desc, 1
    limit candidates
$$;

-- The nearest memories, each by its nearest chunk. score is the cosine. Every operator fits its operands exactly, so that
-- one which somebody else put into pgvector's schema cannot fit better.
create function memsvc.vector_candidates(query_embedding halfvec, model_name text, searched uuid[], candidates integer)
returns table (memory_id uuid, score double precision)
language sql stable security definer rows 100
set search_path = memsvc, extensions, public, pg_temp
as $$
    select e.memory_id, 1::double precision - min(e.embedding <=> query_embedding)
    from memsvc.chunk_embeddings e
    join memsvc.memories m on m.tenant_id = e.tenant_id and m.scope_id = e.scope_id and m.id = e.memory_id
    where e.tenant_id = memsvc.current_tenant()
      and e.scope_id = any (array(select s from memsvc.permitted_scopes('read') s where s = any (searched)))
      and e.model = model_name
      and e.dimension = vector_dims(query_embedding)
      and memsvc.is_current(m)
    group by e.memory_id
    order by 2 desc, 1
    limit candidates
$$;

-- The newest memories, equal texts once. Copies of one home could crowd out everything else: the newest are looked at
-- twenty times as deep as is asked for.
create function memsvc.recency_candidates(searched uuid[], candidates integer)
returns table (memory_id uuid)
language sql stable rows 20
set search_path = memsvc, extensions, public, pg_temp
as $$
    select once.id
    from (
        select distinct on (newest.text_sha256) newest.id, newest.said_at
        from (
            select m.id, m.text_sha256, m.said_at
            from memsvc.memories m
            where m.scope_id = any (searched) and memsvc.is_current(m)
            order by m.said_at desc, m.id
            limit candidates * 20
        ) newest
        order by newest.text_sha256, newest.said_at desc, newest.id
    ) once
    order by once.said_at desc, once.id
    limit candidates
$$;

-- The fused order. Each arm is spread over 0 to 1 among its candidates; meaning and words weigh alike, and recency (halved
-- every 90 days, at most 0.02) only breaks ties. What has no vectors is judged by its words alone, so that a memory that
-- is not embedded yet is not behind. Equal texts are shown once; without a match anywhere the newest come.
create function memsvc.recall(
    query text, query_embedding halfvec, model_name text, searched uuid[], match_count integer
)
returns table (
    memory_id uuid, score double precision, vector_score double precision, text_score double precision,
    vector_rank bigint, text_rank bigint, recency_rank bigint
)
language sql stable rows 20
set search_path = memsvc, extensions, public, pg_temp
as $$
    with by_vector as (
        select v.memory_id, v.score, row_number() over (order by v.score desc, v.memory_id) as place,
            coalesce((v.score - min(v.score) over ()) / nullif(max(v.score) over () - min(v.score) over (), 0), 1) as spread
        from memsvc.vector_candidates(query_embedding, model_name, searched, greatest(100, match_count * 4)) v
        where query_embedding is not null
    ),
    by_text as (
        select t.memory_id, t.score, row_number() over (order by t.score desc, t.memory_id) as place,
            t.score / nullif(max(t.score) over (), 0) as spread
        from memsvc.text_candidates(query, searched, greatest(100, match_count * 4)) t
    ),
    by_recency as (
        select r.memory_id, row_number() over () as place
        from memsvc.recency_candidates(searched, match_count) r
    ),
    candidates as (
        select memory_id from by_vector
        union
        select memory_id from by_text
        union
        select memory_id from by_recency
    ),
    judged as (
        select m.id, m.text_sha256, m.said_at,
            query_embedding is not null and exists (
                select 1 from memsvc.chunk_embeddings e
                where e.tenant_id = m.tenant_id and e.scope_id = m.scope_id and e.model = model_name
                  and e.memory_id = m.id) as has_vectors,
            v.score as vector_score, coalesce(v.spread, 0) as vector_spread, v.place as vector_rank,
            t.score as text_score, coalesce(t.spread, 0) as text_spread, t.place as text_rank,
            r.place as recency_rank
        from candidates c
        join memsvc.memories m on m.tenant_id = memsvc.current_tenant() and m.id = c.memory_id
        left join by_vector v on v.memory_id = c.memory_id
        left join by_text t on t.memory_id = c.memory_id
        left join by_recency r on r.memory_id = c.memory_id
    ),
    fused as (
        select j.*,
            case when j.has_vectors then (j.vector_spread + j.text_spread) / 2 else j.text_spread end
                + 0.02 * exp(-ln(2) / 90 * greatest(0, extract(epoch from now() - j.said_at) / 86400)) as score
        from judged j
    ),
    once as (
        select distinct on (f.text_sha256) f.*
        from fused f
        order by f.text_sha256, f.score desc, f.said_at desc, f.id
    )
    select id, score, vector_score, text_score, vector_rank, text_rank, recency_rank
    from once
    order by score desc, said_at desc, id
    limit match_count
$$;

-- Of the current memories in these scopes, how many have vectors of the model?
create function memsvc.coverage(model_name text, searched uuid[])
returns table (embedded bigint, total bigint)
language sql stable
set search_path = memsvc, extensions, public, pg_temp
as $$
    select count(*) filter (where exists (
            select 1 from memsvc.chunk_embeddings e
            where e.tenant_id = m.tenant_id and e.scope_id = m.scope_id and e.model = model_name and e.memory_id = m.id)),
        count(*)
    from memsvc.memories m
    where m.scope_id = any (searched) and memsvc.is_current(m)
$$;

grant execute on all functions in schema memsvc to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000700', 'recall');

reset search_path;
reset role;
