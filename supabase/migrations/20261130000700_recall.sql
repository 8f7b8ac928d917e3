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

-- Does the text name the person, as whole words in any case?
create function memsvc.names(given text, person text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, memsvc, pg_temp
as $$
    select coalesce(memsvc.bare_words(person) ~ '[[:alnum:]]' and strpos(
        ' ' || lower(memsvc.bare_words(given)) || ' ', ' ' || lower(trim(memsvc.bare_words(person))) || ' ') > 0, false)
$$;

-- Is the row current: not retired, and true now?
create function memsvc.is_current(m memsvc.memories) returns boolean
language sql stable parallel safe
as $$
    select m.retired_at is null
        and (m.valid_from is null or m.valid_from <= now())
        and (m.valid_until is null or m.valid_until > now())
$$;

-- What may be recalled: current memories; hidden_because says why Codex itself would not use their session.
create view memsvc.recallable with (security_invoker = true) as
    select m.*, h.hidden_because
    from memsvc.memories m
    left join memsvc.threads h
        on h.tenant_id = m.tenant_id and h.source_id = m.source_id and h.id = m.thread_id
        and h.hidden_because is not null
    where memsvc.is_current(m);

-- Does the question ask for such a memory? wanted holds kinds and statuses (arrays), since and until (instants that said_at
-- is compared with) and hidden (true: also what Codex would not use); what is absent asks for anything. It is planned into
-- candidate search, so here, too, every operator fits exactly: a bare 'kinds' would be tried as jsonb first.
create function memsvc.asks_for(wanted jsonb, kind text, status text, said_at timestamptz, hidden_because text)
returns boolean
language sql stable parallel safe
as $$
    select (wanted -> 'kinds'::text is null or jsonb_exists(wanted -> 'kinds'::text, kind))
        and (wanted -> 'statuses'::text is null or jsonb_exists(wanted -> 'statuses'::text, status))
        and (wanted ->> 'since'::text is null or said_at >= (wanted ->> 'since'::text)::timestamptz)
        and (wanted ->> 'until'::text is null or said_at < (wanted ->> 'until'::text)::timestamptz)
        and (hidden_because is null or coalesce((wanted ->> 'hidden'::text)::boolean, false))
$$;

-- The nearest memories, each by its nearest chunk of either view. Scores are cosines; null where a view has no vector.
-- Every operator fits its operands exactly, so that one which somebody else put into pgvector's schema cannot fit better.
create function memsvc.vector_candidates(query_embedding halfvec, model_name text, searched uuid[], candidates integer, wanted jsonb)
returns table (memory_id uuid, own double precision, around double precision)
language sql stable security definer rows 100
set search_path = memsvc, extensions, public, pg_temp
as $$
    select e.memory_id,
        1::double precision - min(e.embedding <=> query_embedding) filter (where e.view = 'own'),
        1::double precision - min(e.embedding <=> query_embedding) filter (where e.view = 'window')
    from memsvc.chunk_embeddings e
    join memsvc.recallable m on m.tenant_id = e.tenant_id and m.scope_id = e.scope_id and m.id = e.memory_id
    where e.tenant_id = memsvc.current_tenant()
      and e.scope_id = any (array(select s from memsvc.permitted_scopes('read') s where s = any (searched)))
      and e.model = model_name
      and e.dimension = vector_dims(query_embedding)
      and memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
    group by e.memory_id
    order by min(e.embedding <=> query_embedding), e.memory_id
    limit candidates
$$;

-- How well memories match by their words: any word counts, a rare one counts more (inverse document frequency in the
-- searched scopes). Scored are the best by their own words, the memories of `also`, and the neighbours of both in their
-- conversation. own is a memory's own words, around those of it and its neighbours together.
-- It needs nothing of pgvector's schema, in which somebody else may be allowed to create better fitting operators.
-- A word that more than 2,000 memories have finds no candidates, it only adds to what other words have found; where all
-- are that common, the first 2,000 of each stand for the rest.
create function memsvc.text_scores(query text, searched uuid[], candidates integer, also uuid[], wanted jsonb)
returns table (memory_id uuid, own double precision, around double precision)
language sql stable security definer rows 300
set search_path = pg_catalog, memsvc, pg_temp
as $$
    with allowed as materialized (
        select memsvc.current_tenant() as tenant_id,
            array(select s from memsvc.permitted_scopes('read') s where s = any (searched)) as scope_ids
    ),
    size as materialized (
        select count(*)::double precision as n
        from allowed a
        join memsvc.recallable m on m.tenant_id = a.tenant_id and m.scope_id = any (a.scope_ids)
        where memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
    ),
    found as materialized (
        select q.lexeme, f.id
        from memsvc.query_lexemes(query) q
        cross join allowed a
        cross join lateral (
            select m.id
            from memsvc.recallable m
            where memsvc.lexemes(m.context, m.text) @@ memsvc.one_lexeme(q.lexeme)
              and m.retired_at is null
              and m.tenant_id = a.tenant_id
              and m.scope_id = any (a.scope_ids)
              and memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
            limit 2001
        ) f
    ),
    weights as materialized (
        select f.lexeme, ln(1 + (size.n - count(*) + 0.5) / (count(*) + 0.5)) as weight, count(*) > 2000 as is_common
        from found f, size
        group by f.lexeme, size.n
    ),
    usable as materialized (
        select w.lexeme, w.weight
        from weights w
        where not w.is_common or not exists (select from weights o where not o.is_common)
    ),
    best as (
        select f.id
        from found f
        join usable u on u.lexeme = f.lexeme
        group by f.id
        order by sum(u.weight) desc, f.id
        limit candidates
    ),
    pool as materialized (
        select m.id, m.tenant_id, m.scope_id, m.source_id, m.session, m.ordinal
        from (select b.id from best b union select unnest(also)) c
        cross join allowed a
        join memsvc.recallable m on m.tenant_id = a.tenant_id and m.id = c.id
        where m.scope_id = any (a.scope_ids) and memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
    ),
    scored as materialized (
        select p.id, p.tenant_id, p.scope_id, p.source_id, p.session, p.ordinal from pool p
        union
        select n.id, n.tenant_id, n.scope_id, n.source_id, n.session, n.ordinal
        from pool p
        join memsvc.recallable n
            on n.tenant_id = p.tenant_id and n.scope_id = p.scope_id and n.source_id = p.source_id
            and n.session = p.session
            and n.ordinal in (p.ordinal - 1, p.ordinal + 1) and n.retired_at is null
        where memsvc.asks_for(wanted, n.kind, n.status, n.said_at, n.hidden_because)
    ),
    matched as materialized (
        select f.id, f.lexeme, u.weight
        from found f
        join usable u on u.lexeme = f.lexeme
        union all
        select s.id, w.lexeme, w.weight
        from weights w
        cross join scored s
        join memsvc.memories m on m.tenant_id = s.tenant_id and m.id = s.id
        where w.is_common
          and w.lexeme not in (select lexeme from usable)
          and memsvc.lexemes(m.context, m.text) @@ memsvc.one_lexeme(w.lexeme)
    ),
    near as (
        select s.id, s.id as near_id from scored s
        union all
        select s.id, n.id
        from scored s
        join memsvc.memories n
            on n.tenant_id = s.tenant_id and n.scope_id = s.scope_id and n.source_id = s.source_id
            and n.session = s.session
            and n.ordinal in (s.ordinal - 1, s.ordinal + 1) and n.retired_at is null
        where memsvc.is_current(n)
    ),
    by_own as (
        select s.id, sum(m.weight) as score
        from scored s
        join matched m on m.id = s.id
        group by s.id
    ),
    by_window as (
        select words.id, sum(words.weight) as score
        from (
            select distinct n.id, m.lexeme, m.weight
            from near n
            join matched m on m.id = n.near_id
        ) words
        group by words.id
    )
    select s.id, coalesce(o.score, 0), coalesce(w.score, 0)
    from scored s
    left join by_own o on o.id = s.id
    left join by_window w on w.id = s.id
$$;

-- The newest memories, equal texts once. Copies of one home could crowd out everything else: the newest are looked at
-- twenty times as deep as is asked for.
create function memsvc.recency_candidates(searched uuid[], candidates integer, wanted jsonb)
returns table (memory_id uuid)
language sql stable rows 20
set search_path = memsvc, extensions, public, pg_temp
as $$
    select once.id
    from (
        select distinct on (newest.text_sha256) newest.id, newest.said_at
        from (
            select m.id, m.text_sha256, m.said_at
            from memsvc.recallable m
            where m.scope_id = any (searched) and memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
            order by m.said_at desc, m.id
            limit candidates * 20
        ) newest
        order by newest.text_sha256, newest.said_at desc, newest.id
    ) once
    order by once.said_at desc, once.id
    limit candidates
$$;

-- The fused order. Four scores, each between 0 and 1 against the best in this answer, are added by weights fitted on
-- conversations: a memory's own meaning 0.35, that of it and its neighbours 0.25, its own words 0.25, those of it and its
-- neighbours 0.15. Cosines count from -0.1, which is as low as unrelated texts go. The better of its neighbours lifts a
-- memory by 0.4 of its score, a speaker whom the query names by 0.15, recency (halved every 90 days) by at most 0.02; after
-- a century no number can hold what is left of that.
-- What has no vectors is judged by its words alone, so that a memory that is not embedded yet is not behind. Equal texts
-- are shown once; without a match anywhere the newest come.
create function memsvc.recall(
    query text, query_embedding halfvec, model_name text, searched uuid[], match_count integer, wanted jsonb
)
returns table (
    memory_id uuid, score double precision, vector_score double precision, text_score double precision,
    vector_rank bigint, text_rank bigint, recency_rank bigint
)
language sql stable rows 20
set search_path = memsvc, extensions, public, pg_temp
as $$
    with by_vector as materialized (
        select v.memory_id
        from memsvc.vector_candidates(query_embedding, model_name, searched, greatest(50, match_count * 3), wanted) v
        where query_embedding is not null
    ),
    by_recency as materialized (
        select r.memory_id, row_number() over () as place
        from memsvc.recency_candidates(searched, match_count, wanted) r
    ),
    by_text as materialized (
        select t.memory_id, t.own, t.around
        from memsvc.text_scores(query, searched, greatest(50, match_count * 3), array(
            select memory_id from by_vector union select memory_id from by_recency), wanted) t
    ),
    meant as (
        select m.id, m.scope_id, m.source_id, m.session, m.ordinal, m.speaker, m.text_sha256, m.said_at,
            t.own as own_words, t.around as words_around, v.own as own_meaning, coalesce(v.around, v.own) as meaning_around
        from by_text t
        join memsvc.memories m on m.tenant_id = memsvc.current_tenant() and m.id = t.memory_id
        left join lateral (
            select 1 - min(e.embedding <=> query_embedding) filter (where e.view = 'own') as own,
                1 - min(e.embedding <=> query_embedding) filter (where e.view = 'window') as around
            from memsvc.chunk_embeddings e
            where query_embedding is not null
              and e.tenant_id = m.tenant_id
              and e.scope_id = m.scope_id
              and e.model = model_name
              and e.memory_id = m.id
              and e.dimension = vector_dims(query_embedding)
        ) v on true
    ),
    spread as (
        select m.*,
            coalesce(m.own_words / nullif(max(m.own_words) over (), 0), 0) as a,
            coalesce(m.words_around / nullif(max(m.words_around) over (), 0), 0) as b,
            greatest(0, (m.own_meaning + 0.1) / nullif(max(m.own_meaning) over () + 0.1, 0)) as c,
            greatest(0, (m.meaning_around + 0.1) / nullif(max(m.meaning_around) over () + 0.1, 0)) as d
        from meant m
    ),
    based as materialized (
        select s.*,
            case when s.own_meaning is null then 0.625 * s.a + 0.375 * s.b
                else 0.25 * s.a + 0.15 * s.b + 0.35 * s.c + 0.25 * s.d end as base
        from spread s
    ),
    fused as (
        select b.id, b.text_sha256, b.said_at, b.own_meaning, b.own_words, r.place as recency_rank,
            case when b.own_meaning is not null then row_number() over (
                partition by b.own_meaning is null order by b.own_meaning desc, b.id) end as vector_rank,
            case when b.own_words > 0 then row_number() over (order by b.own_words desc, b.id) end as text_rank,
            (b.base
                + 0.4 * coalesce((
                    select max(n.base) from based n
                    where n.scope_id = b.scope_id and n.source_id = b.source_id and n.session = b.session
                      and n.ordinal in (b.ordinal - 1, b.ordinal + 1)), 0)
                + case when memsvc.names(query, b.speaker) then 0.15 else 0 end
                + 0.02 * exp(-ln(2) / 90 * least(36500, greatest(0, extract(epoch from now() - b.said_at) / 86400)))
            ) / 1.57 as score
        from based b
        left join by_recency r on r.memory_id = b.id
    ),
    once as (
        select distinct on (f.text_sha256) f.*
        from fused f
        order by f.text_sha256, f.score desc, f.said_at desc, f.id
    )
    select id, score, own_meaning, own_words, vector_rank, text_rank, recency_rank
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
    from memsvc.recallable m
    where m.scope_id = any (searched) and m.hidden_because is null
$$;

grant select on memsvc.recallable to memsvc_service;
grant execute on all functions in schema memsvc to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000700', 'recall');

reset search_path;
reset role;
