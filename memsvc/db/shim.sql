-- The roles and the auth functions that Supabase has, for a Postgres that lacks them. Run before the migrations and never
-- part of them: on Supabase they exist and belong to somebody else.
-- Roles belong to the whole server: another database of it may have made them long ago, or be making them now.
do $$
declare
    needed text;
begin
    if exists (select from pg_catalog.pg_namespace where nspname = 'auth') then
        return;
    end if;
    foreach needed in array array['authenticator', 'anon', 'authenticated', 'service_role'] loop
        if not exists (select from pg_catalog.pg_roles where rolname = needed) then
            begin
                execute format('create role %I nologin noinherit %s', needed,
                    -- Only a superuser may give this; without one the role is an ordinary one, and nothing of ours needs it.
                    case when needed = 'service_role' and current_setting('is_superuser') = 'on' then 'bypassrls' else '' end);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
        if needed <> 'authenticator' and not pg_has_role('authenticator', needed, 'set') then
            begin
                execute format('grant %I to authenticator', needed);
            exception when insufficient_privilege then
                null;  -- somebody else's role, and not ours to give
            end;
        end if;
    end loop;
    create schema auth;
    grant usage on schema auth to anon, authenticated, service_role;
    create function auth.jwt() returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
    as 'select nullif(current_setting(''request.jwt.claims'', true), '''')::jsonb';
    create function auth.uid() returns uuid
    language sql stable
    set search_path = pg_catalog, pg_temp
    as 'select (auth.jwt() ->> ''sub'')::uuid';
    create function auth.role() returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
    as 'select auth.jwt() ->> ''role''';
end
$$;
