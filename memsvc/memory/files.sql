-- name: hashes
select path, sha256
from memsvc.source_files
where source_id = %(source_id)s
  and path = any (%(paths)s::text[]);

-- name: upsert
insert into memsvc.source_files (tenant_id, source_id, path, sha256, content)
values (memsvc.current_tenant(), %(source_id)s, %(path)s, %(sha256)s, %(content)s)
on conflict on constraint source_files_pkey do update set
    sha256 = excluded.sha256,
    content = excluded.content,
    updated_at = now();

-- name: heads
select path, substring(content from 1 for 4096)
from memsvc.source_files
where source_id = %(source_id)s
  and path = any (%(paths)s::text[]);
