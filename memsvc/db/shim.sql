-- The roles and the auth functions that Supabase has, for a Postgres that lacks them. Run before the first migration and
-- never part of them: on Supabase they exist and belong to somebody else.
do $$
begin
    if exists (select from pg_catalog.pg_namespace where nspname = 'auth') then
        return;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'anon') then
        create role anon nologin noinherit;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'authenticated') then
        create role authenticated nologin noinherit;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
        create role service_role nologin noinherit;
        -- Only a superuser may give this; without one the role is an ordinary one, and nothing of ours needs it.
        if (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
            alter role service_role bypassrls;
        end if;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'authenticator') then
        create role authenticator noinherit nologin;
        grant anon, authenticated, service_role to authenticator;
    end if;
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
