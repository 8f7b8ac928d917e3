-- name: versions
select o.store, o.thread_id, o.source_updated_at, o.generated_at,
    sha256(o.raw_memory_sha256 || o.rollout_summary_sha256), o.row_sha256
from json_to_recordset(%(keys)s::json) as given (store text, thread_id text)
join memsvc.stage1_outputs o
    on o.source_id = %(source_id)s
    and o.store = given.store
    and o.thread_id = given.thread_id;

-- name: upsert
-- The caller holds the source's lock and has decided that each row is new or newer. Codex's counters never fall, even when
-- the newer text comes from a home that was reset; the selection flags are those of the newest export.
insert into memsvc.stage1_outputs (
    tenant_id, source_id, store, thread_id, scope_id, source_updated_at, raw_memory, rollout_summary, rollout_slug,
    generated_at, usage_count, last_usage, selected_for_phase2, selected_for_phase2_source_updated_at, extra,
    raw_memory_sha256, rollout_summary_sha256, row_sha256)
select (select memsvc.current_tenant()), %(source_id)s, given.store, given.thread_id, given.scope_id,
    given.source_updated_at, given.raw_memory, given.rollout_summary, given.rollout_slug, given.generated_at,
    given.usage_count, given.last_usage, given.selected_for_phase2, given.selected_for_phase2_source_updated_at,
    given.extra, given.raw_memory_sha256, given.rollout_summary_sha256, given.row_sha256
from json_to_recordset(%(rows)s::json) as given (
    store text, thread_id text, scope_id uuid, source_updated_at timestamptz, raw_memory text, rollout_summary text,
    rollout_slug text, generated_at timestamptz, usage_count bigint, last_usage timestamptz,
    selected_for_phase2 bigint, selected_for_phase2_source_updated_at timestamptz, extra jsonb,
    raw_memory_sha256 bytea, rollout_summary_sha256 bytea, row_sha256 bytea)
on conflict on constraint stage1_outputs_pkey do update set
    scope_id = excluded.scope_id,
    source_updated_at = excluded.source_updated_at,
    raw_memory = excluded.raw_memory,
    rollout_summary = excluded.rollout_summary,
    rollout_slug = excluded.rollout_slug,
    generated_at = excluded.generated_at,
    usage_count = greatest(stage1_outputs.usage_count, excluded.usage_count),
    last_usage = greatest(stage1_outputs.last_usage, excluded.last_usage),
    selected_for_phase2 = case
        when %(from_newest)s then excluded.selected_for_phase2 else stage1_outputs.selected_for_phase2 end,
    selected_for_phase2_source_updated_at = case
        when %(from_newest)s then excluded.selected_for_phase2_source_updated_at
        else stage1_outputs.selected_for_phase2_source_updated_at end,
    extra = excluded.extra,
    raw_memory_sha256 = excluded.raw_memory_sha256,
    rollout_summary_sha256 = excluded.rollout_summary_sha256,
    row_sha256 = excluded.row_sha256,
    imported_at = now();

-- name: raise_counters
update memsvc.stage1_outputs as o set
    usage_count = greatest(o.usage_count, given.usage_count),
    last_usage = greatest(o.last_usage, given.last_usage)
from json_to_recordset(%(rows)s::json) as given (
    store text, thread_id text, usage_count bigint, last_usage timestamptz)
where o.source_id = %(source_id)s
  and o.store = given.store
  and o.thread_id = given.thread_id
  and (given.usage_count > coalesce(o.usage_count, -1) or given.last_usage > coalesce(o.last_usage, '-infinity'));

-- name: move
update memsvc.stage1_outputs as o set
    scope_id = given.scope_id
from json_to_recordset(%(rows)s::json) as given (thread_id text, scope_id uuid)
where o.source_id = %(source_id)s
  and o.thread_id = given.thread_id
  and o.scope_id <> given.scope_id
returning o.store, o.thread_id, o.scope_id, o.raw_memory, o.rollout_summary;
