-- name: is_there
-- The catalogue answers every login; to_regclass would ask for rights on the schema.
select exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'memsvc'
      and c.relname = 'schema_migrations');

-- name: take_role
-- The first of these roles that the login may take; without one it has only its own rights.
select set_config('role', takeable.rolname, true)
from (
    select r.rolname
    from pg_catalog.pg_roles r
    where r.rolname = any (%(roles)s::name[]) and pg_has_role(session_user, r.oid, 'set')
    order by array_position(%(roles)s::name[], r.rolname)
    limit 1
) takeable;

-- name: applied
select version, sha256
from memsvc.schema_migrations
order by version;

-- name: take_time
-- The timeouts that a login has are meant for everyday queries. A statement of its own: a timer that runs already goes on.
select set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true);

-- name: lock
-- Transaction level: a pooler may hand the session to somebody else afterwards.
select pg_advisory_xact_lock(hashtextextended('memsvc.migrate', 0));

-- name: vector_versions
select a.default_version, a.installed_version, n.nspname
from pg_catalog.pg_available_extensions a
left join pg_catalog.pg_extension e on e.extname = a.name
left join pg_catalog.pg_namespace n on n.oid = e.extnamespace
where a.name = 'vector';

-- name: record_hashes
-- A file that another tool applied has recorded itself without a hash.
update memsvc.schema_migrations as recorded set
    sha256 = given.sha256
from unnest(%(versions)s::text[], %(hashes)s::bytea[]) as given (version, sha256)
where recorded.version = given.version
  and recorded.sha256 is null;

-- name: may_act
select pg_has_role(%(login)s::name, 'memsvc_service', 'set');
