"""The tables of Codex that hold memory, over all versions seen: which columns they have and what those hold."""

from __future__ import annotations

from memsvc_importers.codex_columns import Column, Table, instant, text, whole, word

STAGE1 = "memory_stage1"

OUTPUTS = Table(
    name="stage1_outputs",
    columns=(
        Column("thread_id", word),
        Column("source_updated_at", instant),
        Column("raw_memory", text),
        Column("rollout_summary", text),
        Column("rollout_slug", text, null=True),
        Column("generated_at", instant),
        Column("usage_count", whole, null=True),
        Column("last_usage", instant, null=True),
        Column("selected_for_phase2", whole),
        Column("selected_for_phase2_source_updated_at", instant, null=True),
    ),
    key=("thread_id",),
    required=("thread_id", "source_updated_at", "raw_memory", "rollout_summary", "generated_at"),
    order=("source_updated_at", "generated_at", "thread_id"),
    absent={
        "rollout_slug": None,
        "usage_count": None,
        "last_usage": None,
        "selected_for_phase2": 0,
        "selected_for_phase2_source_updated_at": None,
    },
    renamed={"summary": "rollout_summary"},  # for a few hours in February 2026
)

JOBS = Table(
    name="jobs",
    columns=(
        Column("kind", word),
        Column("job_key", word),
        Column("status", word),
        Column("worker_id", word, null=True),
        Column("ownership_token", word, null=True),
        Column("started_at", instant, null=True),
        Column("finished_at", instant, null=True),
        Column("lease_until", instant, null=True),
        Column("retry_at", instant, null=True),
        Column("retry_remaining", whole),
        Column("last_error", text, null=True),
        Column("input_watermark", whole, null=True),
        Column("last_success_watermark", whole, null=True),
    ),
    key=("kind", "job_key"),
    required=("kind", "job_key", "status"),
    order=("kind", "job_key"),
    absent={
        "worker_id": None,
        "ownership_token": None,
        "started_at": None,
        "finished_at": None,
        "lease_until": None,
        "retry_at": None,
        "retry_remaining": 3,
        "last_error": None,
        "input_watermark": None,
        "last_success_watermark": None,
    },
    assumed=("retry_remaining",),
)

# One row; an empty key makes a second one a duplicate.
PROGRESS = Table(
    name="consolidation_progress",
    columns=(Column("singleton", whole, null=True), Column("max_thread_count", whole)),
    key=(),
    required=("max_thread_count",),
    order=("max_thread_count",),
)

THREADS = Table(
    name="threads",
    columns=(
        Column("id", word),
        Column("rollout_path", text),
        Column("created_at", instant),
        Column("updated_at", instant),
        Column("source", text),
        Column("model_provider", text),
        Column("cwd", text),
        Column("title", text),
        Column("sandbox_policy", text),
        Column("approval_mode", text),
        Column("tokens_used", whole),
        Column("has_user_event", whole),
        Column("archived", whole),
        Column("archived_at", instant, null=True),
        Column("git_sha", text, null=True),
        Column("git_branch", text, null=True),
        Column("git_origin_url", text, null=True),
        Column("cli_version", text),
        Column("first_user_message", text),
        Column("agent_nickname", text, null=True),
        Column("agent_role", text, null=True),
        Column("memory_mode", text),
        Column("model", text, null=True),
        Column("reasoning_effort", text, null=True),
        Column("agent_path", text, null=True),
        Column("created_at_ms", whole, null=True),
        Column("updated_at_ms", whole, null=True),
        Column("thread_source", text, null=True),
        Column("preview", text),
        Column("recency_at", instant),
        Column("recency_at_ms", whole),
        Column("history_mode", text),
        Column("name", text, null=True),
        Column("is_pinned", whole),
        Column("thread_section_id", text, null=True),
        Column("section_position", whole, null=True),
        Column("section_entered_at_ms", whole, null=True),
        Column("project_id", text, null=True),
    ),
    key=("id",),
    required=("id",),
    order=("id",),
)

# What other tables of Codex's databases are for is known, and it is not memory.
WITHOUT_MEMORY = frozenset(
    {
        "_sqlx_migrations",
        "agent_job_items",
        "agent_jobs",
        "backfill_state",
        "external_agent_config_imports",
        "guardian_review_feedback",
        "logs",
        "project_idempotency_keys",
        "project_roots",
        "projects",
        "queued_items",
        "queued_thread_revisions",
        "remote_control_enrollments",
        "rollout_migration_skipped_rollouts",
        "rollout_migration_state",
        "session_model_ids",
        "thread_attachments",
        "thread_dynamic_tools",
        "thread_goal_continuation_deferrals",
        "thread_goals",
        "thread_history_projection_state",
        "thread_items",
        "thread_read_receipts",
        "thread_sections",
        "thread_spawn_edges",
        "thread_turns",
    }
)
