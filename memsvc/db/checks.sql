-- name: vector_version
select coalesce(installed_version, default_version)
from pg_catalog.pg_available_extensions
where name = 'vector';

-- name: knows_caller
select memsvc.current_principal() is not null;

-- name: tables_without_row_security
select c.relname
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'memsvc'
  and c.relkind in ('r', 'p')
  and not c.relrowsecurity
order by c.relname;
