-- Vectors, several models side by side. The embedding column has no dimension: each model has its own, checked by its
-- row in embedding_models.
set role memsvc_owner;
set search_path = memsvc, extensions, public;

-- Named alike in all tenants; the name says model and variant, so that vectors of two kinds never meet.
create table memsvc.embedding_models (
    tenant_id uuid not null,
    name text collate "C" not null,
    dimension integer not null,
    max_tokens integer not null,
    added_at timestamptz not null default now(),
    constraint embedding_models_pkey primary key (tenant_id, name),
    constraint embedding_models_tenant_fkey foreign key (tenant_id) references memsvc.tenants (id),
    constraint embedding_models_dimension_key unique (tenant_id, name, dimension),
    constraint dimension_fits_halfvec check (dimension between 1 and 4000),
    constraint max_tokens_positive check (max_tokens > 0)
);

-- A piece of a memory that fits a model's window. view 'own' counts characters of memories.text; view 'window' those of
-- the memory and its neighbours. text_sha256 is of the text as it was embedded.
create table memsvc.chunks (
    tenant_id uuid not null,
    scope_id uuid not null,
    memory_id uuid not null,
    view text collate "C" not null,
    starts_at integer not null,
    ends_at integer not null,
    text_sha256 bytea not null,
    constraint chunks_pkey primary key (tenant_id, scope_id, memory_id, view, starts_at, ends_at),
    constraint chunks_memory_fkey foreign key (tenant_id, scope_id, memory_id)
        references memsvc.memories (tenant_id, scope_id, id),
    constraint chunk_view_known check (view in ('own', 'window')),
    constraint chunk_in_order check (starts_at >= 0 and ends_at > starts_at)
);

create table memsvc.chunk_embeddings (
    tenant_id uuid not null,
    scope_id uuid not null,
    model text collate "C" not null,
    memory_id uuid not null,
    view text collate "C" not null,
    starts_at integer not null,
    ends_at integer not null,
    dimension integer not null,
    embedding halfvec not null,
    embedded_at timestamptz not null default now(),
    constraint chunk_embeddings_pkey primary key (tenant_id, scope_id, memory_id, view, starts_at, ends_at, model),
    constraint chunk_embeddings_chunk_fkey foreign key (tenant_id, scope_id, memory_id, view, starts_at, ends_at)
        references memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at),
    constraint chunk_embeddings_model_fkey foreign key (tenant_id, model, dimension)
        references memsvc.embedding_models (tenant_id, name, dimension),
    constraint embedding_has_the_models_dimension check (vector_dims(embedding) = dimension)
);

alter table memsvc.embedding_models enable row level security;
alter table memsvc.chunks enable row level security;
alter table memsvc.chunk_embeddings enable row level security;

create policy own_tenant on memsvc.embedding_models for select
    using (tenant_id = (select memsvc.current_tenant()));
create policy tenant_writer on memsvc.embedding_models for insert
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')));
create policy readable on memsvc.chunks for select
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('read')));
create policy writable on memsvc.chunks for insert
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')));
create policy readable on memsvc.chunk_embeddings for select
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('read')));
create policy writable on memsvc.chunk_embeddings for insert
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')));

-- A window changes with its neighbours: the old one is taken away, and so are the vectors made from it.
create policy window_is_replaced on memsvc.chunks for delete
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write'))
        and view = 'window');
create policy window_is_replaced on memsvc.chunk_embeddings for delete
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write'))
        and view = 'window');

-- What was retired speaks no longer through the windows of its neighbours: they are void, for every model, from the commit
-- on that retires it, unless the same words stand in its place by then, as when a line was only classified anew.
create function memsvc.void_windows() returns trigger
language plpgsql security definer
set search_path = pg_catalog, memsvc, pg_temp
as $$
declare
    neighbours uuid[];
begin
    neighbours := array(
        select n.id
        from memsvc.memories n
        where n.tenant_id = old.tenant_id and n.scope_id = old.scope_id and n.source_id = old.source_id
          and n.session = old.session and n.ordinal between old.ordinal - 1 and old.ordinal + 1
          and n.retired_at is null
          and not exists (
            select from memsvc.memories s
            where s.tenant_id = old.tenant_id and s.scope_id = old.scope_id and s.source_id = old.source_id
              and s.session = old.session and s.ordinal = old.ordinal and s.retired_at is null
              and s.text = old.text and s.speaker is not distinct from old.speaker));
    delete from memsvc.chunk_embeddings e
    where e.tenant_id = old.tenant_id and e.scope_id = old.scope_id and e.memory_id = any (neighbours)
      and e.view = 'window';
    delete from memsvc.chunks c
    where c.tenant_id = old.tenant_id and c.scope_id = old.scope_id and c.memory_id = any (neighbours)
      and c.view = 'window';
    return null;
end
$$;

create constraint trigger retired_voids_windows after update of retired_at on memsvc.memories
    deferrable initially deferred for each row
    when (old.retired_at is null and new.retired_at is not null and new.session is not null)
    execute function memsvc.void_windows();

-- Take away a model's vectors, at most so many at a time; with the last of them goes the model, and the jobs that were
-- its own. Returns how many vectors went: 0 means that all is done.
create function memsvc.drop_model(given text, most integer) returns bigint
language plpgsql security definer
set search_path = pg_catalog, memsvc, pg_temp
as $$
declare
    tenant constant uuid := memsvc.current_tenant();
    dropped bigint;
begin
    if not memsvc.permits_tenant('admin') then
        raise insufficient_privilege using message = 'only an admin drops a model';
    end if;
    with gone as (
        delete from memsvc.chunk_embeddings e
        using (
            select f.scope_id, f.memory_id, f.view, f.starts_at, f.ends_at
            from memsvc.chunk_embeddings f
            where f.tenant_id = tenant and f.model = given
            limit most
        ) part
        where e.tenant_id = tenant and e.model = given
          and (e.scope_id, e.memory_id, e.view, e.starts_at, e.ends_at)
            = (part.scope_id, part.memory_id, part.view, part.starts_at, part.ends_at)
        returning e.scope_id, e.memory_id, e.view, e.starts_at, e.ends_at
    ),
    unused as (
        select g.* from gone g
        where not exists (
            select from memsvc.chunk_embeddings o
            where o.tenant_id = tenant and o.scope_id = g.scope_id and o.memory_id = g.memory_id and o.view = g.view
              and o.starts_at = g.starts_at and o.ends_at = g.ends_at and o.model <> given)
    ),
    emptied as (
        delete from memsvc.chunks c
        using unused u
        where c.tenant_id = tenant
          and (c.scope_id, c.memory_id, c.view, c.starts_at, c.ends_at)
            = (u.scope_id, u.memory_id, u.view, u.starts_at, u.ends_at)
    )
    select count(*) into dropped from gone;
    if dropped = 0 then
        delete from memsvc.jobs j
        where j.tenant_id = tenant and j.store = 'memsvc' and j.kind = 'memory_embed:' || given;
        delete from memsvc.embedding_models m where m.tenant_id = tenant and m.name = given;
    end if;
    return dropped;
end
$$;

grant select, insert on memsvc.embedding_models to memsvc_service;
grant select, insert, delete on memsvc.chunks, memsvc.chunk_embeddings to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000600', 'embeddings');

reset search_path;
reset role;
