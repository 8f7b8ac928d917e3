-- name: drop
delete from memsvc.stage1_originals o
using json_to_recordset(%(rows)s::json) as given (
    store text, table_name text, row_key text, column_name text)
where o.source_id = %(source_id)s
  and o.store = given.store
  and o.table_name = given.table_name
  and o.row_key = given.row_key
  and o.column_name = given.column_name;

-- name: keep
insert into memsvc.stage1_originals (
    tenant_id, source_id, store, table_name, row_key, column_name, original)
select (select memsvc.current_tenant()), %(source_id)s, given.store, given.table_name, given.row_key, given.column_name,
    given.original
from json_to_recordset(%(rows)s::json) as given (
    store text, table_name text, row_key text, column_name text, original bytea)
on conflict on constraint stage1_originals_pkey do update set
    original = excluded.original;

-- name: keys
select store, table_name, row_key, column_name
from memsvc.stage1_originals
where source_id = %(source_id)s
order by store, table_name, row_key, column_name;

-- name: original
select original
from memsvc.stage1_originals
where source_id = %(source_id)s
  and store = %(store)s
  and table_name = %(table_name)s
  and row_key = %(row_key)s
  and column_name = %(column_name)s;
