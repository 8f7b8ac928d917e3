-- name: versions
select id, found_in, updated_at, row_sha256
from memsvc.threads
where source_id = %(source_id)s
  and id = any (%(thread_ids)s::text[]);

-- name: scopes_of
select id, scope_id
from memsvc.threads
where source_id = %(source_id)s
  and id = any (%(thread_ids)s::text[]);

-- name: upsert
-- The caller holds the source's lock and has decided that each row is new or newer.
insert into memsvc.threads (
    tenant_id, source_id, id, scope_id, found_in, rollout_path, created_at, updated_at, source, model_provider, cwd,
    title, sandbox_policy, approval_mode, tokens_used, has_user_event, archived, archived_at, git_sha, git_branch,
    git_origin_url, cli_version, first_user_message, agent_nickname, agent_role, memory_mode, model, reasoning_effort,
    agent_path, created_at_ms, updated_at_ms, thread_source, preview, recency_at, recency_at_ms, history_mode, name,
    is_pinned, thread_section_id, section_position, section_entered_at_ms, project_id, extra, row_sha256)
select (select memsvc.current_tenant()), %(source_id)s, given.id, given.scope_id, given.found_in, given.rollout_path,
    given.created_at, given.updated_at, given.source, given.model_provider, given.cwd, given.title,
    given.sandbox_policy, given.approval_mode, given.tokens_used, given.has_user_event, given.archived,
    given.archived_at, given.git_sha, given.git_branch, given.git_origin_url, given.cli_version,
    given.first_user_message, given.agent_nickname, given.agent_role, given.memory_mode, given.model,
    given.reasoning_effort, given.agent_path, given.created_at_ms, given.updated_at_ms, given.thread_source,
    given.preview, given.recency_at, given.recency_at_ms, given.history_mode, given.name, given.is_pinned,
    given.thread_section_id, given.section_position, given.section_entered_at_ms, given.project_id, given.extra, given.row_sha256
from json_to_recordset(%(rows)s::json) as given (
    id text, scope_id uuid, found_in text, rollout_path text, created_at timestamptz, updated_at timestamptz,
    source text, model_provider text, cwd text, title text, sandbox_policy text, approval_mode text,
    tokens_used bigint, has_user_event bigint, archived bigint, archived_at timestamptz, git_sha text,
    git_branch text, git_origin_url text, cli_version text, first_user_message text, agent_nickname text,
    agent_role text, memory_mode text, model text, reasoning_effort text, agent_path text, created_at_ms bigint,
    updated_at_ms bigint, thread_source text, preview text, recency_at timestamptz, recency_at_ms bigint,
    history_mode text, name text, is_pinned bigint, thread_section_id text,
    section_position bigint, section_entered_at_ms bigint, project_id text, extra jsonb, row_sha256 bytea)
on conflict on constraint threads_pkey do update set
    scope_id = excluded.scope_id,
    found_in = excluded.found_in,
    rollout_path = excluded.rollout_path,
    created_at = excluded.created_at,
    updated_at = excluded.updated_at,
    source = excluded.source,
    model_provider = excluded.model_provider,
    cwd = excluded.cwd,
    title = excluded.title,
    sandbox_policy = excluded.sandbox_policy,
    approval_mode = excluded.approval_mode,
    tokens_used = excluded.tokens_used,
    has_user_event = excluded.has_user_event,
    archived = excluded.archived,
    archived_at = excluded.archived_at,
    git_sha = excluded.git_sha,
    git_branch = excluded.git_branch,
    git_origin_url = excluded.git_origin_url,
    cli_version = excluded.cli_version,
    first_user_message = excluded.first_user_message,
    agent_nickname = excluded.agent_nickname,
    agent_role = excluded.agent_role,
    memory_mode = excluded.memory_mode,
    model = excluded.model,
    reasoning_effort = excluded.reasoning_effort,
    agent_path = excluded.agent_path,
    created_at_ms = excluded.created_at_ms,
    updated_at_ms = excluded.updated_at_ms,
    thread_source = excluded.thread_source,
    preview = excluded.preview,
    recency_at = excluded.recency_at,
    recency_at_ms = excluded.recency_at_ms,
    history_mode = excluded.history_mode,
    name = excluded.name,
    is_pinned = excluded.is_pinned,
    thread_section_id = excluded.thread_section_id,
    section_position = excluded.section_position,
    section_entered_at_ms = excluded.section_entered_at_ms,
    project_id = excluded.project_id,
    extra = excluded.extra,
    row_sha256 = excluded.row_sha256;

-- name: mark
update memsvc.threads as t set
    deleted = given.deleted
from json_to_recordset(%(rows)s::json) as given (id text, deleted boolean)
where t.source_id = %(source_id)s
  and t.id = given.id
  and t.deleted <> given.deleted
returning t.id;
