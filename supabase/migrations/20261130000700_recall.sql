-- Recall: candidates from vectors, from full text and from recency, fused into one order.
-- Full-text operators are not leakproof: under a policy Postgres would filter every readable row instead of using the
-- index. So candidate search alone runs as the owner; it asks who is calling itself, takes no principal, and carries the
-- scope clause inside. What it finds is read again under the policies.
set role memsvc_owner;
set search_path = memsvc, extensions, public;

-- Words of a text, one blank between: what is left without punctuation.
create function memsvc.bare_words(given text) returns text
language sql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$ select regexp_replace(given, '[^[:alnum:]]+', ' ', 'g') $$;

-- The words of paths and identifiers: whole, and where camelCase joins some, in parts too.
create function memsvc.parts(given text) returns text
language sql immutable parallel safe strict
set search_path = pg_catalog, memsvc, pg_temp
as $$
    select memsvc.bare_words(given) || case when given ~ '[[:lower:][:digit:]][[:upper:]]'
        then ' ' || memsvc.bare_words(regexp_replace(given, '([[:lower:][:digit:]])([[:upper:]])', '\1 \2', 'g'))
        else '' end
$$;

-- The pairs of neighbouring characters in what is written without blanks (Chinese, Japanese, Korean, Thai, Lao, Burmese,
-- Khmer), and the single characters too, so that a word of one character is found.
create function memsvc.bigrams(given text) returns tsvector
language sql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$
    select case
        when given ~ '[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]'
        then (
            select array_to_tsvector(array_agg(distinct substr(run[1], at, size)))
            from regexp_matches(given,
                '[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+',
                'g') run,
                generate_series(1, 2) size,
                generate_series(1, length(run[1]) - size + 1) at)
        else ''::tsvector
    end
$$;

-- The language of a text besides English, as a text search configuration: told by its script, else by its small words, of
-- which there must be two at least and more than English ones; null where none is told.
create function memsvc.language(given text) returns regconfig
language sql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$
    select case
        when given ~ '[\u0400-\u04ff]' then 'russian'::regconfig
        when given ~ '[\u0370-\u03ff]' then 'greek'::regconfig
        when given ~ '[\u0600-\u06ff]' then 'arabic'::regconfig
        when given ~ '[\u0900-\u097f]' then 'hindi'::regconfig
        else (
            select nullif(small.language, 'english')::regconfig
            from (values
                ('english', '\m(the|and|of|to|is|in|for|with|that|not|are|was|it|this|be|on)\M'),
                ('german', '\m(der|die|das|und|nicht|ist|mit|den|wir|ein|eine|einen|für|auf|zu|dem|werden|im)\M'),
                ('french', '\m(le|la|les|des|est|pas|une|dans|pour|que|avec|sur|du|au|et|il)\M'),
                ('spanish', '\m(el|los|las|que|una|para|con|por|del|está|como|es|la|en|se|y)\M'),
                ('portuguese', '\m(não|uma|para|com|os|dos|por|está|são|do|da|que|um|em|ao|e)\M'),
                ('italian', '\m(il|che|non|per|una|con|gli|della|sono|di|del|è|si|nel|la|e)\M'),
                ('dutch', '\m(het|een|niet|van|voor|met|zijn|de|en|dat|op|wordt|te|naar)\M'),
                ('swedish', '\m(och|att|det|som|inte|är|för|på|en|ett|med|av|till)\M'),
                ('danish', '\m(og|ikke|det|af|til|på|er|som|med|den|en|et|jeg)\M'),
                ('norwegian', '\m(og|ikke|det|av|til|på|er|som|med|den|en|et|jeg)\M'),
                ('finnish', '\m(ja|ei|on|että|se|mutta|kun|ovat|tai|myös)\M')
            ) small (language, words)
            cross join regexp_count(left(given, 2000), small.words, 1, 'i') found
            where found >= 2
            order by found desc, small.language = 'english' desc, small.language
            limit 1)
    end
$$;

-- What a memory can be found by: stems of English and of its own language, whole tokens, the parts of identifiers, and
-- bigrams where words are not parted. A tsvector holds at most 1 MB; the cut keeps the longest text inside that.
create function memsvc.lexemes(context text, body text) returns tsvector
language sql immutable parallel safe strict
set search_path = pg_catalog, memsvc, pg_temp
as $$
    select strip(to_tsvector('pg_catalog.english', whole)
        || coalesce(to_tsvector(memsvc.language(whole), whole), ''::tsvector)
        || to_tsvector('pg_catalog.simple', whole)
        || to_tsvector('pg_catalog.simple', memsvc.parts(whole))
        || memsvc.bigrams(whole))
    from (select left(context || E'\n' || body, 60000) as whole) cut
$$;

-- Kept beside the text without positions, since ranking reads it far more often than anything is written.
alter table memsvc.memories add column lexemes tsvector not null generated always as (memsvc.lexemes(context, text)) stored;
create index memories_lexemes on memsvc.memories using gin (lexemes) where retired_at is null;

-- The lexemes a query is looked up by: stems and plain words, and bigrams. Words that say nothing (the stop words of
-- English and of the query's language) are left out unless nothing else remains. At most 200, so that a pasted page cannot
-- run away.
create function memsvc.query_lexemes(query text) returns table (lexeme text)
language sql immutable parallel safe strict
set search_path = pg_catalog, memsvc, pg_temp
as $$
    with cut as (
        select given as whole, coalesce(memsvc.language(given), 'english'::regconfig) as language
        from left(query, 20000) given
    ),
    plain as (
        select u.lexeme,
            to_tsvector('pg_catalog.english', u.lexeme) = ''::tsvector
                or to_tsvector(cut.language, u.lexeme) = ''::tsvector as says_nothing
        from cut, unnest(to_tsvector('pg_catalog.simple', whole)
            || to_tsvector('pg_catalog.simple', memsvc.parts(whole))) u
    ),
    pairs as (
        select u.lexeme, length(u.lexeme) as size from cut, unnest(memsvc.bigrams(whole)) u
    ),
    telling as (
        select p.lexeme from plain p where not p.says_nothing
        union
        select u.lexeme from cut, unnest(to_tsvector('pg_catalog.english', whole) || to_tsvector(cut.language, whole)) u
        union
        select p.lexeme from pairs p where p.size = 2 or not exists (select from pairs longer where longer.size = 2)
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

-- The index over a model's vectors: where there is one, its name and how many vectors it holds. Every model has its own,
-- since an index wants one dimension; it is built when there are enough vectors to be worth it.
create function memsvc.vector_index(model_name text) returns table (name text, size double precision)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select c.relname::text, greatest(c.reltuples, 0)::double precision
    from pg_class c
    join pg_index i on i.indexrelid = c.oid
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'memsvc'::name
      and c.relname = ('chunk_embeddings_hnsw_'::text || md5(model_name))::name
      and i.indisvalid
$$;

-- The nearest memories by the model's index. It is walked on until there are enough of what may be searched, or gives up;
-- how far it looks grows with its size. Sorting is off so that the planner cannot leave the index for a scan of all.
create function memsvc.indexed_candidates(
    query_embedding halfvec, model_name text, size double precision, scope_ids uuid[], candidates integer, wanted jsonb
)
returns table (memory_id uuid)
language plpgsql stable rows 100
set search_path = memsvc, extensions, public, pg_temp
set enable_sort = off
as $body$
begin
    perform set_config('hnsw.iterative_scan', 'relaxed_order', true),
        set_config('hnsw.ef_search', least(1000, greatest(400, sqrt(size)))::integer::text, true),
        set_config('hnsw.max_scan_tuples', greatest(20000, size / 4)::integer::text, true);
    return query execute format($query$
        select near.memory_id
        from (
            select e.memory_id, e.embedding::halfvec(%1$s) <=> $1 as distance
            from memsvc.chunk_embeddings e
            join memsvc.recallable m on m.tenant_id = e.tenant_id and m.scope_id = e.scope_id and m.id = e.memory_id
            where e.model = %2$L
              and e.tenant_id = memsvc.current_tenant()
              and e.scope_id = any ($2)
              and memsvc.asks_for($4, m.kind, m.status, m.said_at, m.hidden_because)
            order by e.embedding::halfvec(%1$s) <=> $1
            limit $3 * 4
        ) near
        group by near.memory_id
        order by min(near.distance), near.memory_id
        limit $3
    $query$, vector_dims(query_embedding), model_name)
    using query_embedding, scope_ids, candidates, wanted;
end
$body$;

-- The nearest memories by comparing every vector. Most questions want any memory: the nearest few are looked at first,
-- and all only where too few of those are asked for.
create function memsvc.compared_candidates(
    query_embedding halfvec, model_name text, scope_ids uuid[], candidates integer, wanted jsonb
)
returns table (memory_id uuid)
language plpgsql stable rows 100
set search_path = memsvc, extensions, public, pg_temp
as $$
declare
    depth integer := candidates * 4;
    found uuid[];
begin
    loop
        found := array(
            select near.memory_id
            from (
                select e.scope_id, e.memory_id, min(e.embedding <=> query_embedding) as distance
                from memsvc.chunk_embeddings e
                where e.tenant_id = memsvc.current_tenant()
                  and e.scope_id = any (scope_ids)
                  and e.model = model_name
                  and e.dimension = vector_dims(query_embedding)
                group by e.scope_id, e.memory_id
                order by min(e.embedding <=> query_embedding), e.memory_id
                limit depth
            ) near
            join memsvc.recallable m
                on m.tenant_id = memsvc.current_tenant() and m.scope_id = near.scope_id and m.id = near.memory_id
            where memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
            order by near.distance, near.memory_id
            limit candidates);
        exit when cardinality(found) >= candidates or depth is null;
        depth := null;
    end loop;
    return query select unnest(found);
end
$$;

-- The nearest memories, each by its nearest chunk of either view. Scores are cosines; null where a view has no vector.
-- Up to 10,000 vectors are compared one by one. Where there are more, the model's index is asked; what it cannot answer
-- in full, because the scope or the question is too narrow for it, is compared one by one after all.
-- Every operator fits its operands exactly, so that one which somebody else put into pgvector's schema cannot fit better.
create function memsvc.vector_candidates(query_embedding halfvec, model_name text, searched uuid[], candidates integer, wanted jsonb)
returns table (memory_id uuid, own double precision, around double precision)
language plpgsql stable security definer rows 100
set search_path = memsvc, extensions, public, pg_temp
as $$
declare
    tenant constant uuid := memsvc.current_tenant();
    scope_ids constant uuid[] := array(select s from memsvc.permitted_scopes('read') s where s = any (searched));
    size double precision;
    found uuid[];
begin
    if (select count(*) > 10000::bigint from (
        select from memsvc.chunk_embeddings e
        where e.tenant_id = tenant and e.scope_id = any (scope_ids) and e.model = model_name
        limit 10001) bounded)
    then
        select i.size into size from memsvc.vector_index(model_name) i;
        if size is not null then
            found := array(select c.memory_id
                from memsvc.indexed_candidates(query_embedding, model_name, size, scope_ids, candidates, wanted) c);
        end if;
    end if;
    if found is null or cardinality(found) < candidates then
        found := array(
            select c.memory_id
            from memsvc.compared_candidates(query_embedding, model_name, scope_ids, candidates, wanted) c);
    end if;
    return query
        select e.memory_id,
            1::double precision - min(e.embedding <=> query_embedding) filter (where e.view = 'own'),
            1::double precision - min(e.embedding <=> query_embedding) filter (where e.view = 'window')
        from memsvc.chunk_embeddings e
        where e.tenant_id = tenant
          and e.scope_id = any (scope_ids)
          and e.model = model_name
          and e.memory_id = any (found)
          and e.dimension = vector_dims(query_embedding)
        group by e.memory_id;
end
$$;

-- How well memories match by their words: any word counts, a rare one counts more (inverse document frequency in the
-- searched scopes). Scored are the best by their own words, the memories of `also`, and the neighbours of both in their
-- conversation. own is a memory's own words, around those of it and its neighbours together.
-- It needs nothing of pgvector's schema, in which somebody else may be allowed to create better fitting operators.
-- Looked up are the rarest words, as many as come to about 50,000 matches; commoner ones find no candidates, they only add
-- to what the others have found. How common a word is, the newest 1,000 of all
-- scopes together tell; up to 10,000 memories all words are looked up.
create function memsvc.text_scores(query text, searched uuid[], candidates integer, also uuid[], wanted jsonb)
returns table (memory_id uuid, own double precision, around double precision)
language sql stable security definer rows 300
set search_path = pg_catalog, memsvc, pg_temp
set jit = off
as $$
    with allowed as materialized (
        select memsvc.current_tenant() as tenant_id,
            array(select s from memsvc.permitted_scopes('read') s where s = any (searched)) as scope_ids
    ),
    size as materialized (
        select (
            select count(*)::double precision
            from memsvc.memories m
            where m.tenant_id = a.tenant_id and m.scope_id = any (a.scope_ids) and m.retired_at is null) as n
        from allowed a
    ),
    sample as materialized (
        select newest.lexemes
        from allowed a
        cross join size
        cross join lateral unnest(a.scope_ids) s
        cross join lateral (
            select m.lexemes
            from memsvc.memories m
            where m.tenant_id = a.tenant_id and m.scope_id = s and m.retired_at is null
            order by m.said_at desc, m.id
            limit 1 + 1000 / cardinality(a.scope_ids)
        ) newest
        where size.n > 10000
    ),
    words as materialized (
        select q.lexeme, memsvc.one_lexeme(q.lexeme) as word
        from memsvc.query_lexemes(query) q
    ),
    guessed as materialized (
        select w.lexeme, w.word,
            size.n * coalesce((select avg((s.lexemes @@ w.word)::integer) from sample s), 0) as n
        from words w, size
    ),
    asked as materialized (
        select g.lexeme, g.word, g.n,
            sum(g.n) over rarest_first <= 50000 or row_number() over rarest_first = 1 as is_looked_up
        from guessed g
        window rarest_first as (order by g.n, g.lexeme)
    ),
    found as materialized (
        select q.lexeme, f.id
        from asked q
        cross join allowed a
        cross join lateral (
            select m.id
            from memsvc.recallable m
            where m.lexemes @@ q.word
              and m.retired_at is null
              and m.tenant_id = a.tenant_id
              and m.scope_id = any (a.scope_ids)
              and memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
            limit 50001
        ) f
        where q.is_looked_up
    ),
    weights as materialized (
        select df.lexeme, ln(1 + (size.n - df.n + 0.5) / (df.n + 0.5)) as weight
        from (
            select f.lexeme, count(*)::double precision as n from found f group by f.lexeme
            union all
            select q.lexeme, q.n from asked q where not q.is_looked_up
        ) df
        cross join size
    ),
    best as (
        select f.id
        from found f
        join weights w on w.lexeme = f.lexeme
        group by f.id
        order by sum(w.weight) desc, f.id
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
    near as materialized (
        select s.id, s.id as near_id, s.tenant_id from scored s
        union all
        select s.id, n.id, n.tenant_id
        from scored s
        join memsvc.memories n
            on n.tenant_id = s.tenant_id and n.scope_id = s.scope_id and n.source_id = s.source_id
            and n.session = s.session
            and n.ordinal in (s.ordinal - 1, s.ordinal + 1) and n.retired_at is null
        where memsvc.is_current(n)
    ),
    matched as materialized (
        select m.id, w.lexeme, w.weight
        from (select distinct n.tenant_id, n.near_id from near n) one
        join memsvc.memories m on m.tenant_id = one.tenant_id and m.id = one.near_id
        cross join lateral unnest(m.lexemes) l
        join weights w on w.lexeme = l.lexeme
    ),
    by_own as (
        select m.id, sum(m.weight) as score
        from matched m
        group by m.id
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
-- twenty times as deep as is asked for, scope by scope.
create function memsvc.recency_candidates(searched uuid[], candidates integer, wanted jsonb)
returns table (memory_id uuid)
language sql stable rows 20
set search_path = memsvc, extensions, public, pg_temp
as $$
    select once.id
    from (
        select distinct on (newest.text_sha256) newest.id, newest.said_at
        from unnest(searched) s
        cross join lateral (
            select m.id, m.text_sha256, m.said_at
            from memsvc.recallable m
            where m.tenant_id = memsvc.current_tenant()
              and m.scope_id = s
              and m.retired_at is null
              and memsvc.asks_for(wanted, m.kind, m.status, m.said_at, m.hidden_because)
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
set jit = off
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

-- Of the memories in these scopes that may be recalled, hidden ones only where they are asked for: how many have vectors of
-- the model, how many are there? Every recall asks this. Joined whole, since a look-up for each memory takes several times
-- as long; planned anew for the scopes at hand, which may be tiny or everything.
create function memsvc.coverage(model_name text, searched uuid[], hidden boolean)
returns table (embedded bigint, total bigint)
language sql stable rows 1
set search_path = memsvc, extensions, public, pg_temp
set work_mem = '64MB'
set plan_cache_mode = force_custom_plan
set jit = off
as $$
    select (
            select count(*)
            from memsvc.recallable m
            where m.scope_id = any (searched)
              and (hidden or m.hidden_because is null)
              and exists (
                select 1 from memsvc.chunk_embeddings e
                where e.tenant_id = m.tenant_id
                  and e.scope_id = m.scope_id
                  and e.scope_id = any (searched)
                  and e.model = model_name
                  and e.memory_id = m.id
                  and e.view = 'own')),
        count(*)
    from memsvc.recallable m
    where m.scope_id = any (searched) and (hidden or m.hidden_because is null)
$$;

grant select on memsvc.recallable to memsvc_service;
grant execute on all functions in schema memsvc to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000700', 'recall');

reset search_path;
reset role;
