-- What was imported, as it was exported: Codex's columns under their own names, next to what memsvc adds.
-- Instants are timestamptz here and seconds in the exports; columns ending in _ms and watermarks stay numbers.
set role memsvc_owner;

-- One imported home. exported_at is the newest instant seen in any of its exports.
create table memsvc.sources (
    tenant_id uuid not null,
    id uuid not null default gen_random_uuid(),
    importer text collate "C" not null,
    label text collate "C" not null,
    home text collate "C",
    host text collate "C",
    exported_at timestamptz,
    created_at timestamptz not null default now(),
    constraint sources_pkey primary key (tenant_id, id),
    constraint sources_tenant_fkey foreign key (tenant_id) references memsvc.tenants (id),
    constraint source_label_unique unique (tenant_id, label),
    constraint source_label_not_empty check (label <> '')
);

-- Files of a home that have no table of their own, kept so that an export can write them back.
create table memsvc.source_files (
    tenant_id uuid not null,
    source_id uuid not null,
    path text collate "C" not null,
    sha256 bytea not null,
    content bytea not null,
    updated_at timestamptz not null default now(),
    constraint source_files_pkey primary key (tenant_id, source_id, path),
    constraint source_files_source_fkey foreign key (tenant_id, source_id) references memsvc.sources (tenant_id, id)
);

-- Codex's threads. found_in says whether a row of that table was seen ('state') or only a trace of the session; extra
-- holds columns that have no place here. deleted: the newest export had the whole table, and this session was not in it.
-- hidden_because is why Codex does not use what the session taught; null: it does.
create table memsvc.threads (
    tenant_id uuid not null,
    source_id uuid not null,
    id text collate "C" not null,
    scope_id uuid not null,
    found_in text not null,
    rollout_path text,
    created_at timestamptz,
    updated_at timestamptz,
    source text,
    model_provider text,
    cwd text,
    title text,
    sandbox_policy text,
    approval_mode text,
    tokens_used bigint,
    has_user_event bigint,
    archived bigint,
    archived_at timestamptz,
    git_sha text,
    git_branch text,
    git_origin_url text,
    cli_version text,
    first_user_message text,
    agent_nickname text,
    agent_role text,
    memory_mode text,
    model text,
    reasoning_effort text,
    agent_path text,
    created_at_ms bigint,
    updated_at_ms bigint,
    thread_source text,
    preview text,
    recency_at timestamptz,
    recency_at_ms bigint,
    history_mode text,
    name text,
    is_pinned bigint,
    thread_section_id text,
    section_position bigint,
    section_entered_at_ms bigint,
    project_id text,
    extra jsonb not null default '{}',
    row_sha256 bytea not null,
    deleted boolean not null default false,
    hidden_because text generated always as (
        case when deleted then 'deleted' when memory_mode in ('disabled', 'polluted') then memory_mode end
    ) stored,
    constraint threads_pkey primary key (tenant_id, source_id, id),
    constraint threads_source_fkey foreign key (tenant_id, source_id) references memsvc.sources (tenant_id, id),
    constraint threads_scope_fkey foreign key (tenant_id, scope_id) references memsvc.scopes (tenant_id, id),
    constraint found_in_known check (found_in in ('state', 'summary', 'front_matter'))
);

-- Codex's ten columns. The texts are what Postgres can hold, secrets redacted; the two hashes are of the original bytes.
-- row_sha256 is of the row as last imported: equal means that nothing has to be read again.
create table memsvc.stage1_outputs (
    tenant_id uuid not null,
    source_id uuid not null,
    store text collate "C" not null,
    thread_id text collate "C" not null,
    scope_id uuid not null,
    source_updated_at timestamptz not null,
    raw_memory text not null,
    rollout_summary text not null,
    rollout_slug text,
    generated_at timestamptz not null,
    usage_count bigint,
    last_usage timestamptz,
    selected_for_phase2 bigint not null default 0,
    selected_for_phase2_source_updated_at timestamptz,
    extra jsonb not null default '{}',
    raw_memory_sha256 bytea not null,
    rollout_summary_sha256 bytea not null,
    row_sha256 bytea not null,
    imported_at timestamptz not null default now(),
    constraint stage1_outputs_pkey primary key (tenant_id, source_id, store, thread_id),
    constraint stage1_outputs_source_fkey foreign key (tenant_id, source_id)
        references memsvc.sources (tenant_id, id),
    constraint stage1_outputs_scope_fkey foreign key (tenant_id, scope_id) references memsvc.scopes (tenant_id, id)
);
create index stage1_outputs_recency
    on memsvc.stage1_outputs (tenant_id, scope_id, source_updated_at desc, thread_id desc);

-- The original bytes of any imported text that could not be kept as it was (NUL, invalid UTF-8, secrets).
create table memsvc.stage1_originals (
    tenant_id uuid not null,
    source_id uuid not null,
    store text collate "C" not null,
    table_name text collate "C" not null,
    row_key text collate "C" not null,
    column_name text collate "C" not null,
    original bytea not null,
    constraint stage1_originals_pkey primary key (tenant_id, source_id, store, table_name, row_key, column_name),
    constraint stage1_originals_source_fkey foreign key (tenant_id, source_id)
        references memsvc.sources (tenant_id, id)
);

create table memsvc.consolidation_progress (
    tenant_id uuid not null,
    source_id uuid not null,
    store text collate "C" not null,
    max_thread_count bigint not null,
    constraint consolidation_progress_pkey primary key (tenant_id, source_id, store),
    constraint consolidation_progress_source_fkey foreign key (tenant_id, source_id)
        references memsvc.sources (tenant_id, id)
);

-- One run of an importer: the checkpoint moves in the transaction that writes the batch. backend_pid is the connection
-- that wrote it: when that is gone, so is the importer. The hashes of a complete run, of what was asked and of the state it
-- left, tell whether the same import would change anything.
create table memsvc.import_runs (
    tenant_id uuid not null,
    id uuid not null default gen_random_uuid(),
    source_id uuid not null,
    path text not null,
    status text not null default 'pending',
    last_watermark text,
    last_success_at timestamptz,
    counts jsonb not null default '{}',
    failures jsonb not null default '[]',
    warnings jsonb not null default '[]',
    backend_pid integer,
    request_sha256 bytea,
    state_sha256 bytea,
    stores text[] not null default '{}',
    started_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint import_runs_pkey primary key (tenant_id, id),
    constraint import_runs_source_fkey foreign key (tenant_id, source_id) references memsvc.sources (tenant_id, id),
    constraint import_status_known check (status in ('pending', 'running', 'complete')),
    constraint complete_has_success check (status <> 'complete' or last_success_at is not null)
);
create index import_runs_source on memsvc.import_runs (tenant_id, source_id, started_at desc);
create index import_runs_request on memsvc.import_runs (tenant_id, request_sha256, started_at desc);

-- Rows that no table can take. The values are as exported: text, numbers, or {"hex": ...} for bytes that are no text.
create table memsvc.import_rejects (
    tenant_id uuid not null,
    source_id uuid not null,
    store text collate "C" not null,
    table_name text collate "C" not null,
    row_key text collate "C" not null,
    row_sha256 bytea not null,
    reason text not null,
    row_values jsonb not null,
    first_seen_at timestamptz not null default now(),
    constraint import_rejects_pkey primary key (tenant_id, source_id, store, table_name, row_key, row_sha256),
    constraint import_rejects_source_fkey foreign key (tenant_id, source_id)
        references memsvc.sources (tenant_id, id)
);

alter table memsvc.sources enable row level security;
alter table memsvc.source_files enable row level security;
alter table memsvc.threads enable row level security;
alter table memsvc.stage1_outputs enable row level security;
alter table memsvc.stage1_originals enable row level security;
alter table memsvc.consolidation_progress enable row level security;
alter table memsvc.import_runs enable row level security;
alter table memsvc.import_rejects enable row level security;

create policy own_tenant on memsvc.sources for select
    using (tenant_id = (select memsvc.current_tenant()));
create policy tenant_writer on memsvc.sources for all
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')));
-- Originals may hold secrets: admins only, to read, to write and to cut.
create policy tenant_admin on memsvc.source_files for all
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy tenant_admin on memsvc.stage1_originals for all
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy tenant_admin on memsvc.import_rejects for all
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy readable on memsvc.threads for select
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('read')));
create policy writable on memsvc.threads for all
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')))
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')));
create policy readable on memsvc.stage1_outputs for select
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('read')));
create policy writable on memsvc.stage1_outputs for all
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')))
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')));
create policy tenant_reader on memsvc.consolidation_progress for select
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('read')));
create policy tenant_writer on memsvc.consolidation_progress for all
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')));
create policy tenant_reader on memsvc.import_runs for select
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('read')));
create policy tenant_writer on memsvc.import_runs for all
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')));

grant select, insert, update on memsvc.sources, memsvc.threads, memsvc.stage1_outputs,
    memsvc.consolidation_progress, memsvc.import_runs to memsvc_service;
grant select, insert, update, delete on memsvc.source_files, memsvc.stage1_originals, memsvc.import_rejects
    to memsvc_service;

-- The source of all that belongs to no import.
insert into memsvc.sources (tenant_id, id, importer, label)
values ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000004', 'memsvc', 'local');

insert into memsvc.schema_migrations (version, name) values ('20261130000300', 'sources_and_outputs');

reset role;
