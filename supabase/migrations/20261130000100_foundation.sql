-- Roles, schemas, pgvector, and the record of what is applied.
-- Everything is owned by a role that nobody logs in as, so that row-level security binds every login.
-- Roles belong to the whole server: another database of it may have made them long ago, or be making them now. A login
-- that may take a role already is not granted it again, which only the role's maker or a superuser could do.
do $$
declare
    needed text;
begin
    foreach needed in array array['memsvc_owner', 'memsvc_service'] loop
        if not exists (select from pg_catalog.pg_roles where rolname = needed) then
            begin
                execute format('create role %I nologin', needed);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
        if not pg_has_role(current_user, needed, 'set') then
            execute format('grant %I to %I', needed, current_user);
        end if;
    end loop;
end
$$;

-- pgvector stays where it is. A grant without the right to grant is only warned of, hence the second look.
do $$
declare
    home text;
begin
    if not exists (select from pg_catalog.pg_extension where extname = 'vector') then
        create schema if not exists extensions;
        begin
            create extension vector with schema extensions;
        exception when insufficient_privilege then
            raise insufficient_privilege using message = format(
                'pgvector is not in this database yet, and only a superuser may put it there: psql -d %s -c "create extension vector"',
                quote_ident(current_database()));
        end;
    end if;
    select n.nspname into strict home
    from pg_catalog.pg_extension e
    join pg_catalog.pg_namespace n on n.oid = e.extnamespace
    where e.extname = 'vector';
    for attempt in 1..2 loop
        exit when has_schema_privilege('memsvc_owner', home, 'usage')
            and has_schema_privilege('memsvc_service', home, 'usage');
        if attempt = 2 then
            raise insufficient_privilege using message = format(
                'pgvector is in schema %I, which this login may not open to memsvc: grant usage on schema %I to public',
                home, home);
        end if;
        execute format('grant usage on schema %I to memsvc_owner, memsvc_service', home);
    end loop;
end
$$;

do $$
declare
    taken text;
begin
    select n.nspname into taken
    from pg_catalog.pg_namespace n
    where n.nspname in ('memsvc', 'memsvc_api') and n.nspowner <> 'memsvc_owner'::regrole;
    if found then
        raise duplicate_schema using message = format('schema %I is there already and is not memsvc''s', taken);
    end if;
end
$$;

create schema if not exists memsvc authorization memsvc_owner;
create schema if not exists memsvc_api authorization memsvc_owner;

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
