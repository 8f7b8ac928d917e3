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
    constraint chunk_embeddings_pkey primary key (tenant_id, scope_id, model, memory_id, view, starts_at, ends_at),
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

grant select, insert on memsvc.embedding_models to memsvc_service;
grant select, insert, delete on memsvc.chunks, memsvc.chunk_embeddings to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000600', 'embeddings');

reset search_path;
reset role;
