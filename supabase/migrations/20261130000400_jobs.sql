-- The job ledger: Codex's thirteen columns under their own names, and what a queue needs besides.
-- Rows of store 'memsvc' are live. Rows of any other store are the history of an import: verbatim, never claimed, and
-- outside every constraint but the key. row_sha256 is of such a row as last imported.
set role memsvc_owner;

-- due_at is when a live job may be claimed: not_before while pending, retry_at after an error, lease_until while
-- running, so that a job left behind by a dead worker comes back by itself. It is null for history, for what is done and
-- for what was stopped. scope_id, where there is one, lets those who may write the scope enqueue and watch its work.
create table memsvc.jobs (
    tenant_id uuid not null,
    source_id uuid not null,
    store text collate "C" not null,
    kind text collate "C" not null,
    job_key text collate "C" not null,
    scope_id uuid,
    status text collate "C" not null,
    worker_id text,
    ownership_token text,
    started_at timestamptz,
    finished_at timestamptz,
    lease_until timestamptz,
    retry_at timestamptz,
    retry_remaining bigint not null,
    last_error text,
    input_watermark bigint,
    last_success_watermark bigint,
    priority smallint not null default 0,
    not_before timestamptz,
    stop_reason text,
    attempts integer not null default 0,
    extra jsonb not null default '{}',
    row_sha256 bytea,
    due_at timestamptz generated always as (
        case
            when store <> 'memsvc' or status = 'done' or stop_reason is not null then null
            when status = 'running' then lease_until
            when status = 'error' then greatest(retry_at, not_before)
            else not_before
        end
    ) stored,
    constraint jobs_pkey primary key (tenant_id, source_id, store, kind, job_key),
    constraint jobs_source_fkey foreign key (tenant_id, source_id) references memsvc.sources (tenant_id, id),
    constraint jobs_scope_fkey foreign key (tenant_id, scope_id) references memsvc.scopes (tenant_id, id),
    constraint live_status_known check (store <> 'memsvc' or status in ('pending', 'running', 'done', 'error')),
    constraint running_has_lease check (
        store <> 'memsvc' or status <> 'running' or (lease_until is not null and ownership_token is not null)),
    constraint stopped_is_error check (stop_reason is null or (store = 'memsvc' and status = 'error')),
    constraint stop_reason_known check (stop_reason in ('exhausted', 'poison', 'cancelled')),
    constraint live_can_move check (
        store <> 'memsvc' or status in ('done', 'running') or stop_reason is not null
        or not_before is not null or (status = 'error' and retry_at is not null)),
    constraint live_comes_due check (
        store <> 'memsvc' or (isfinite(lease_until) and isfinite(retry_at) and isfinite(not_before)) is not false),
    constraint live_counts_up check (store <> 'memsvc' or (attempts >= 0 and retry_remaining >= 0))
);
create index jobs_due on memsvc.jobs (tenant_id, kind, priority desc, due_at, source_id, job_key)
    where store = 'memsvc' and status <> 'done';
-- The live leases of a kind, for its cap.
create index jobs_running on memsvc.jobs (tenant_id, kind, lease_until)
    where store = 'memsvc' and status = 'running';
-- Every transition leaves a dead row: vacuum comes early, or claims would step over thousands of them.
alter table memsvc.jobs set (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);

-- What an operator has set for a kind; a kind without a row goes by the program's own figures. max_running: the most live
-- leases at a time, null for any number. max_attempts: the most leases on one input. longest_lease: how long one may be
-- kept alive in all. A null of the last two leaves the program's figure.
create table memsvc.job_kinds (
    tenant_id uuid not null,
    kind text collate "C" not null,
    enabled boolean not null default true,
    max_running integer,
    max_attempts integer,
    longest_lease interval,
    constraint job_kinds_pkey primary key (tenant_id, kind),
    constraint job_kinds_tenant_fkey foreign key (tenant_id) references memsvc.tenants (id),
    constraint max_running_positive check (max_running > 0),
    constraint max_attempts_positive check (max_attempts > 0),
    constraint longest_lease_positive check (longest_lease > interval '0' and isfinite(longest_lease))
);

-- One row a lease, written when the lease ends, by its owner or by whoever takes the job over. Of leases that were given
-- back one after the other only the first is kept: an outage that lasts for days is one line.
create table memsvc.job_attempts (
    tenant_id uuid not null,
    source_id uuid not null,
    store text collate "C" not null,
    kind text collate "C" not null,
    job_key text collate "C" not null,
    ownership_token text not null,
    worker_id text,
    started_at timestamptz not null,
    ended_at timestamptz not null default now(),
    outcome text not null,
    error text,
    constraint job_attempts_pkey primary key (tenant_id, source_id, store, kind, job_key, ownership_token),
    constraint job_attempts_job_fkey foreign key (tenant_id, source_id, store, kind, job_key)
        references memsvc.jobs (tenant_id, source_id, store, kind, job_key) on delete cascade,
    constraint outcome_known check (outcome in ('done', 'error', 'released', 'lost', 'cancelled'))
);

alter table memsvc.jobs enable row level security;
alter table memsvc.job_attempts enable row level security;
alter table memsvc.job_kinds enable row level security;

create policy readable on memsvc.jobs for select
    using (tenant_id = (select memsvc.current_tenant())
        and ((select memsvc.permits_tenant('read')) or scope_id in (select memsvc.permitted_scopes('read'))));
-- One policy a command: each one that applies is evaluated anew for each scan of a claim. Whoever may write may read.
create policy addable on memsvc.jobs for insert
    with check (tenant_id = (select memsvc.current_tenant())
        and ((select memsvc.permits_tenant('write')) or scope_id in (select memsvc.permitted_scopes('write'))));
create policy writable on memsvc.jobs for update
    using (tenant_id = (select memsvc.current_tenant())
        and ((select memsvc.permits_tenant('write')) or scope_id in (select memsvc.permitted_scopes('write'))));
create policy tenant_reader on memsvc.job_attempts for select
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('read')));
create policy tenant_writer on memsvc.job_attempts for insert
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('write')));
create policy own_tenant on memsvc.job_kinds for select
    using (tenant_id = (select memsvc.current_tenant()));
create policy admin_adds on memsvc.job_kinds for insert
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy admin_sets on memsvc.job_kinds for update
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));

grant select, insert, update on memsvc.jobs, memsvc.job_kinds to memsvc_service;
grant select, insert on memsvc.job_attempts to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000400', 'jobs');

reset role;
