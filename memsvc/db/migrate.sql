-- name: is_there
select to_regclass('memsvc.schema_migrations') is not null;

-- name: applied
select version, sha256
from memsvc.schema_migrations
order by version;

-- name: lock
-- Transaction level: a pooler may hand the session to somebody else afterwards.
select pg_advisory_xact_lock(hashtextextended('memsvc.migrate', 0));

-- name: vector_versions
select default_version, installed_version
from pg_catalog.pg_available_extensions
where name = 'vector';

-- name: record_hashes
-- A file that another tool applied has recorded itself without a hash.
update memsvc.schema_migrations as recorded set
    sha256 = given.sha256
from unnest(%(versions)s::text[], %(hashes)s::bytea[]) as given (version, sha256)
where recorded.version = given.version
  and recorded.sha256 is null;
