-- Memories: one statement each, what supports it, and what people said of it.
-- Nothing is edited in place: a correction is a new row that supersedes the old one. The scope of a row never changes,
-- so that chunks and vectors may carry it in their keys.
set role memsvc_owner;

-- valid_from and valid_until are about the world; recorded_at and retired_at are about what we believed. said_at, by which
-- recency goes, is when it was first said: the time of its session, or when it was remembered.
-- session and ordinal are its place in a conversation; of a derived row its place among the lines of its output when it
-- was found. A derived row names its output (source_id, store, thread_id) and the rule set that found it; occurrence
-- counts equal texts in one output, life counts how often the line came back or was classified anew. A row derived from a
-- file of consolidated memory names its path; thread_id is then the one session that the line is said to come from, if
-- there is one. document is what a derived row was found in.
-- fact_evidence_earns lets the foreign key reach only evidence of a kind that earns facts.
create table memsvc.memories (
    tenant_id uuid not null,
    id uuid not null default gen_random_uuid(),
    scope_id uuid not null,
    kind text collate "C" not null,
    status text collate "C" not null,
    origin text collate "C" not null,
    text text not null,
    context text not null default '',
    text_sha256 bytea not null,
    author_id uuid not null,
    source_id uuid not null,
    store text collate "C",
    thread_id text collate "C",
    path text collate "C",
    document text collate "C" generated always as (coalesce(path, thread_id)) stored,
    rule_set text collate "C",
    occurrence integer not null default 0,
    life integer not null default 0,
    session text collate "C",
    ordinal bigint,
    speaker text,
    observed_at timestamptz,
    valid_from timestamptz,
    valid_until timestamptz,
    said_at timestamptz not null default now(),
    recorded_at timestamptz not null default now(),
    retired_at timestamptz,
    retired_by uuid,
    retired_because text,
    superseded_by uuid,
    fact_evidence_id uuid,
    fact_evidence_earns boolean generated always as (
        case when fact_evidence_id is null then null else true end) stored,
    idempotency_key text collate "C",
    constraint memories_pkey primary key (tenant_id, id),
    constraint memories_scope_key unique (tenant_id, scope_id, id),
    constraint memories_scope_fkey foreign key (tenant_id, scope_id) references memsvc.scopes (tenant_id, id),
    constraint memories_author_fkey foreign key (tenant_id, author_id) references memsvc.principals (tenant_id, id),
    constraint memories_source_fkey foreign key (tenant_id, source_id) references memsvc.sources (tenant_id, id),
    constraint memories_file_fkey foreign key (tenant_id, source_id, path)
        references memsvc.source_files (tenant_id, source_id, path),
    constraint memories_retired_by_fkey foreign key (tenant_id, retired_by)
        references memsvc.principals (tenant_id, id),
    constraint memories_successor_fkey foreign key (tenant_id, superseded_by)
        references memsvc.memories (tenant_id, id) deferrable initially deferred,
    constraint memory_kind_known check (
        kind in ('preference', 'knowledge', 'failure', 'reference', 'task', 'note')),
    constraint memory_status_known check (status in ('fact', 'reported', 'inference', 'assumption', 'question')),
    constraint memory_origin_known check (origin in ('imported', 'extracted', 'agent', 'human')),
    constraint memory_text_not_blank check (text ~ '[^[:space:]]'),
    constraint fact_has_evidence check (status <> 'fact' or fact_evidence_id is not null),
    constraint derived_names_its_document check (
        (rule_set is null) = (coalesce(path, thread_id) is null)
        and (store is null) = (coalesce(path, thread_id) is null)),
    constraint retired_has_reason check ((retired_at is null) = (retired_because is null)),
    constraint superseded_is_retired check (superseded_by is null or retired_at is not null),
    constraint not_superseded_by_itself check (superseded_by <> id),
    constraint valid_range_in_order check (valid_until > valid_from)
);
create index memories_document on memsvc.memories (tenant_id, source_id, store, document) where document is not null;
-- Neighbours in a conversation: the turns, or the lines of one session output, before and after.
create index memories_conversation on memsvc.memories (tenant_id, scope_id, source_id, session, ordinal)
    where session is not null and retired_at is null;
-- How many memories came of a source is counted at each import of it; equal keys take little room.
create index memories_derived on memsvc.memories (tenant_id, source_id, scope_id)
    where rule_set is not null and retired_at is null;
create index memories_recency on memsvc.memories (tenant_id, scope_id, said_at desc, id) where retired_at is null;
-- What one says twice in a scope is one memory, unless it was said in another place of a conversation.
create unique index memories_said_once on memsvc.memories
    (tenant_id, scope_id, text_sha256, coalesce(session, ''), coalesce(ordinal, -1), coalesce(speaker, ''))
    where retired_at is null and rule_set is null;
create unique index memories_idempotency on memsvc.memories (tenant_id, author_id, idempotency_key)
    where idempotency_key is not null;

-- kind: session_output, memory_file (model-written texts, earn nothing; a file's locator has its path, its sha-256 and
-- the sessions that the line is said to come from), user_words, tool_output, person (somebody said so or
-- confirmed it), url. locator says where to look again; sha256 is of the quoted bytes there.
create table memsvc.evidence (
    tenant_id uuid not null,
    memory_id uuid not null,
    id uuid not null default gen_random_uuid(),
    scope_id uuid not null,
    kind text collate "C" not null,
    locator jsonb not null,
    sha256 bytea not null,
    quote text,
    added_by uuid not null,
    added_at timestamptz not null default now(),
    earns_fact boolean generated always as (kind in ('user_words', 'tool_output', 'person')) stored,
    constraint evidence_pkey primary key (tenant_id, memory_id, id),
    constraint evidence_earns_key unique (tenant_id, memory_id, id, earns_fact),
    constraint evidence_memory_fkey foreign key (tenant_id, scope_id, memory_id)
        references memsvc.memories (tenant_id, scope_id, id),
    constraint evidence_added_by_fkey foreign key (tenant_id, added_by)
        references memsvc.principals (tenant_id, id),
    constraint evidence_kind_known check (
        kind in ('session_output', 'memory_file', 'user_words', 'tool_output', 'person', 'url'))
);
alter table memsvc.memories add constraint memories_fact_evidence_fkey
    foreign key (tenant_id, id, fact_evidence_id, fact_evidence_earns)
    references memsvc.evidence (tenant_id, memory_id, id, earns_fact) deferrable initially deferred;

-- Append only; the effective status is that of the last review at or before the asked time. evidence_earns lets a foreign
-- key see to it that a review, too, makes a fact only of evidence that earns one.
create table memsvc.reviews (
    tenant_id uuid not null,
    memory_id uuid not null,
    id uuid not null default gen_random_uuid(),
    scope_id uuid not null,
    verdict text collate "C" not null,
    status text collate "C",
    reviewer_id uuid not null,
    reviewed_at timestamptz not null default now(),
    note text,
    evidence_id uuid,
    evidence_earns boolean generated always as (case when status = 'fact' then true end) stored,
    constraint reviews_pkey primary key (tenant_id, memory_id, id),
    constraint reviews_memory_fkey foreign key (tenant_id, scope_id, memory_id)
        references memsvc.memories (tenant_id, scope_id, id),
    constraint reviews_reviewer_fkey foreign key (tenant_id, reviewer_id)
        references memsvc.principals (tenant_id, id),
    constraint reviews_evidence_fkey foreign key (tenant_id, memory_id, evidence_id)
        references memsvc.evidence (tenant_id, memory_id, id),
    constraint reviews_fact_evidence_fkey foreign key (tenant_id, memory_id, evidence_id, evidence_earns)
        references memsvc.evidence (tenant_id, memory_id, id, earns_fact),
    constraint verdict_known check (verdict in ('confirm', 'dispute', 'reject', 'downgrade')),
    constraint review_status_known check (status in ('fact', 'reported', 'inference', 'assumption', 'question')),
    constraint review_fact_has_evidence check (status <> 'fact' or evidence_id is not null)
);
create index reviews_last on memsvc.reviews (tenant_id, memory_id, reviewed_at desc, id);

alter table memsvc.memories enable row level security;
alter table memsvc.evidence enable row level security;
alter table memsvc.reviews enable row level security;

create policy readable on memsvc.memories for select
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('read')));
-- Nobody speaks in another's name, but for an admin, who may bring in what others said elsewhere.
create policy writable on memsvc.memories for insert
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write'))
        and (author_id = (select memsvc.current_principal()) or (select memsvc.permits_tenant('admin'))));
create policy changeable on memsvc.memories for update
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')))
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')));
create policy readable on memsvc.evidence for select
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('read')));
-- Only a person's word is a person's word: an agent that says so earns no fact.
create policy writable on memsvc.evidence for insert
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write'))
        and (added_by = (select memsvc.current_principal()) or (select memsvc.permits_tenant('admin')))
        and (kind <> 'person' or (select memsvc.permits_tenant('admin'))
            or exists (select from memsvc.principals p
                where p.tenant_id = evidence.tenant_id and p.id = evidence.added_by and p.kind = 'person')));
-- What earned a fact stays as it was.
create policy changeable on memsvc.evidence for update
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write'))
        and not earns_fact)
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write')));
create policy readable on memsvc.reviews for select
    using (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('read')));
create policy writable on memsvc.reviews for insert
    with check (tenant_id = (select memsvc.current_tenant()) and scope_id in (select memsvc.permitted_scopes('write'))
        and (reviewer_id = (select memsvc.current_principal()) or (select memsvc.permits_tenant('admin'))));

-- Text, author and evidence of a memory are written once: only the columns that retire a row may change, and the
-- place of derived evidence, which follows its line.
grant select, insert on memsvc.memories, memsvc.evidence, memsvc.reviews to memsvc_service;
grant update (retired_at, retired_by, retired_because, superseded_by) on memsvc.memories to memsvc_service;
grant update (locator, sha256, quote) on memsvc.evidence to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000500', 'memories');

reset role;
