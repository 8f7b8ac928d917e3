-- Roles, schemas, pgvector, and the record of what is applied.
-- Everything is owned by a role that nobody logs in as, so that row-level security binds every login.
do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'memsvc_owner') then
        create role memsvc_owner nologin;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'memsvc_service') then
        create role memsvc_service nologin;
    end if;
end
$$;

grant memsvc_owner to current_user;
grant memsvc_service to current_user;

create schema if not exists extensions;
create extension if not exists vector with schema extensions;

create schema if not exists memsvc authorization memsvc_owner;
create schema if not exists memsvc_api authorization memsvc_owner;
grant usage on schema extensions to memsvc_owner, memsvc_service;

set role memsvc_owner;

revoke all on schema memsvc, memsvc_api from public;
grant usage on schema memsvc to memsvc_service;
alter default privileges revoke execute on functions from public;

-- sha256 is what the runner saw when it applied the file; null when another tool applied it.
create table memsvc.schema_migrations (
    version text not null,
    name text not null,
    sha256 bytea,
    applied_at timestamptz not null default now(),
    constraint schema_migrations_pkey primary key (version),
    constraint version_has_14_digits check (version ~ '^[0-9]{14}$')
);
alter table memsvc.schema_migrations enable row level security;
create policy everyone_reads on memsvc.schema_migrations for select using (true);
grant select on memsvc.schema_migrations to memsvc_service;

insert into memsvc.schema_migrations (version, name) values ('20261130000100', 'foundation');

reset role;
