-- Who asks, and where memories lie. Every policy of every later table stands on the functions at the end of this file.
set role memsvc_owner;

-- forget_key keys the hashes that keep forgotten text from coming back; no role may read it.
create table memsvc.tenants (
    id uuid not null default gen_random_uuid(),
    name text collate "C" not null,
    forget_key bytea not null default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    created_at timestamptz not null default now(),
    constraint tenants_pkey primary key (id),
    constraint tenant_name_not_blank check (name <> '')
);

-- A principal is known to us by our own session setting, by a Supabase user (auth_user_id) or by its login role.
create table memsvc.principals (
    tenant_id uuid not null,
    id uuid not null default gen_random_uuid(),
    kind text not null,
    name text collate "C" not null,
    auth_user_id text collate "C",
    login_role text collate "C",
    created_at timestamptz not null default now(),
    disabled_at timestamptz,
    constraint principals_pkey primary key (tenant_id, id),
    constraint principals_tenant_fkey foreign key (tenant_id) references memsvc.tenants (id),
    constraint principal_name_unique unique (tenant_id, name),
    constraint principal_auth_user_unique unique (tenant_id, auth_user_id),
    constraint principal_login_role_unique unique (tenant_id, login_role),
    constraint principal_kind_known check (kind in ('person', 'agent', 'service'))
);

-- parent_kind lets a foreign key say that a project's parent is a client. Everything lies below global.
create table memsvc.scopes (
    tenant_id uuid not null,
    id uuid not null default gen_random_uuid(),
    kind text not null,
    name text collate "C" not null,
    parent_id uuid,
    parent_kind text generated always as (case when parent_id is null then null else 'client' end) stored,
    created_at timestamptz not null default now(),
    constraint scopes_pkey primary key (tenant_id, id),
    constraint scopes_tenant_fkey foreign key (tenant_id) references memsvc.tenants (id),
    constraint scope_name_unique unique (tenant_id, kind, name),
    constraint scope_kind_key unique (tenant_id, id, kind),
    constraint scope_parent_is_client foreign key (tenant_id, parent_id, parent_kind)
        references memsvc.scopes (tenant_id, id, kind),
    constraint scope_kind_known check (kind in ('global', 'client', 'project')),
    constraint scope_name_not_empty check (name <> ''),
    constraint only_projects_have_a_parent check (parent_id is null or kind = 'project'),
    constraint one_global check (kind <> 'global' or name = 'global')
);

-- What names a project in the world. host is empty where the value is the same on every machine.
create table memsvc.scope_aliases (
    tenant_id uuid not null,
    kind text not null,
    host text collate "C" not null default '',
    value text collate "C" not null,
    scope_id uuid not null,
    created_at timestamptz not null default now(),
    constraint scope_aliases_pkey primary key (tenant_id, kind, host, value),
    constraint scope_aliases_scope_fkey foreign key (tenant_id, scope_id) references memsvc.scopes (tenant_id, id),
    constraint alias_kind_known check (kind in ('git_origin', 'root', 'cwd', 'explicit'))
);
create index scope_aliases_scope on memsvc.scope_aliases (tenant_id, scope_id);

create type memsvc.rights as enum ('read', 'write', 'admin');

create table memsvc.grants (
    tenant_id uuid not null,
    principal_id uuid not null,
    scope_id uuid not null,
    rights memsvc.rights not null,
    descends boolean not null default true,
    granted_at timestamptz not null default now(),
    constraint grants_pkey primary key (tenant_id, principal_id, scope_id),
    constraint grants_principal_fkey foreign key (tenant_id, principal_id)
        references memsvc.principals (tenant_id, id),
    constraint grants_scope_fkey foreign key (tenant_id, scope_id) references memsvc.scopes (tenant_id, id)
);

-- The caller: our own setting counts only for our service role, JWT claims only behind PostgREST's login; anybody else is
-- who the database says. No row means nobody, and every policy then answers no; so does what is no uuid and no JSON, since
-- an error would come with the text that it is about.
create function memsvc.caller() returns table (tenant_id uuid, principal_id uuid)
language plpgsql stable security definer
set search_path = memsvc, pg_temp
as $$
declare
    acting text := coalesce(nullif(current_setting('role', true), 'none'), session_user);
    tenant text := current_setting('memsvc.tenant_id', true);
    principal text := current_setting('memsvc.principal_id', true);
    token text := current_setting('request.jwt.claims', true);
    claims jsonb;
begin
    if acting = 'memsvc_service' then
        if not coalesce(pg_input_is_valid(tenant, 'uuid') and pg_input_is_valid(principal, 'uuid'), false) then
            return;
        end if;
        return query
            select p.tenant_id, p.id
            from memsvc.principals p
            where p.tenant_id = tenant::uuid
              and p.id = principal::uuid
              and p.disabled_at is null;
    elsif session_user = 'authenticator' then
        if not coalesce(pg_input_is_valid(token, 'jsonb'), false) then
            return;
        end if;
        claims := token::jsonb;
        -- A user of several tenants names one in the token; without it no tenant is guessed.
        return query
            select min(p.tenant_id::text)::uuid, min(p.id::text)::uuid
            from memsvc.principals p
            where p.auth_user_id = claims ->> 'sub'
              and p.tenant_id::text
                = lower(coalesce(claims -> 'app_metadata' ->> 'memsvc_tenant_id', p.tenant_id::text))
              and p.disabled_at is null
            having count(*) = 1;
    else
        return query
            select min(p.tenant_id::text)::uuid, min(p.id::text)::uuid
            from memsvc.principals p
            where p.login_role = acting
              and p.disabled_at is null
            having count(*) = 1;
    end if;
end
$$;

create function memsvc.current_tenant() returns uuid
language sql stable security definer
set search_path = memsvc, pg_temp
as $$ select tenant_id from memsvc.caller() $$;

create function memsvc.current_principal() returns uuid
language sql stable security definer
set search_path = memsvc, pg_temp
as $$ select principal_id from memsvc.caller() $$;

-- Scopes of the caller's tenant in which it holds at least the needed rights. A grant that descends reaches from global to
-- everything, from a client to its projects.
create function memsvc.permitted_scopes(needed memsvc.rights) returns setof uuid
language sql stable security definer rows 100
set search_path = memsvc, pg_temp
as $$
    select s.id
    from memsvc.caller() c
    join memsvc.scopes s on s.tenant_id = c.tenant_id
    where exists (
        select 1
        from memsvc.grants g
        join memsvc.scopes granted on granted.tenant_id = g.tenant_id and granted.id = g.scope_id
        where g.tenant_id = c.tenant_id
          and g.principal_id = c.principal_id
          and g.rights >= needed
          and (g.scope_id = s.id or (g.descends and (granted.kind = 'global' or g.scope_id = s.parent_id)))
    )
$$;

-- Does the caller hold the rights over its whole tenant?
create function memsvc.permits_tenant(needed memsvc.rights) returns boolean
language sql stable security definer
set search_path = memsvc, pg_temp
as $$
    select exists (
        select 1
        from memsvc.caller() c
        join memsvc.grants g on g.tenant_id = c.tenant_id and g.principal_id = c.principal_id
        join memsvc.scopes s on s.tenant_id = g.tenant_id and s.id = g.scope_id
        where s.kind = 'global' and g.descends and g.rights >= needed
    )
$$;

alter table memsvc.tenants enable row level security;
alter table memsvc.principals enable row level security;
alter table memsvc.scopes enable row level security;
alter table memsvc.scope_aliases enable row level security;
alter table memsvc.grants enable row level security;

create policy own_tenant on memsvc.tenants for select
    using (id = (select memsvc.current_tenant()));
create policy own_tenant on memsvc.principals for select
    using (tenant_id = (select memsvc.current_tenant())
        and (id = (select memsvc.current_principal()) or (select memsvc.permits_tenant('admin'))));
-- A scope that is just being made is not among the permitted ones yet: whoever reads the whole tenant reads it too.
create policy readable on memsvc.scopes for select
    using (tenant_id = (select memsvc.current_tenant())
        and ((select memsvc.permits_tenant('read')) or id in (select memsvc.permitted_scopes('read'))));
create policy admin_adds on memsvc.scopes for insert
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy admin_renames on memsvc.scopes for update
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy readable on memsvc.scope_aliases for select
    using (tenant_id = (select memsvc.current_tenant())
        and ((select memsvc.permits_tenant('read')) or scope_id in (select memsvc.permitted_scopes('read'))));
create policy admin_adds on memsvc.scope_aliases for insert
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy admin_moves on memsvc.scope_aliases for update
    using (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')))
    with check (tenant_id = (select memsvc.current_tenant()) and (select memsvc.permits_tenant('admin')));
create policy own_or_admin on memsvc.grants for select
    using (tenant_id = (select memsvc.current_tenant())
        and (principal_id = (select memsvc.current_principal()) or (select memsvc.permits_tenant('admin'))));

grant select (id, name, created_at) on memsvc.tenants to memsvc_service;
grant select on memsvc.principals, memsvc.grants to memsvc_service;
grant select, insert on memsvc.scopes, memsvc.scope_aliases to memsvc_service;
grant update (name) on memsvc.scopes to memsvc_service;
grant update (scope_id) on memsvc.scope_aliases to memsvc_service;
grant execute on function memsvc.caller(), memsvc.current_tenant(), memsvc.current_principal(),
    memsvc.permitted_scopes(memsvc.rights), memsvc.permits_tenant(memsvc.rights) to memsvc_service;

-- The one tenant of an installation that never asked for tenants, its global scope, and the owner of the machine.
insert into memsvc.tenants (id, name) values ('00000000-0000-4000-8000-000000000001', 'default');
insert into memsvc.principals (tenant_id, id, kind, name)
values ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002', 'person', 'owner');
insert into memsvc.scopes (tenant_id, id, kind, name)
values ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000003', 'global', 'global');
insert into memsvc.grants (tenant_id, principal_id, scope_id, rights)
values ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002',
    '00000000-0000-4000-8000-000000000003', 'admin');

insert into memsvc.schema_migrations (version, name) values ('20261130000200', 'principals_and_scopes');

reset role;
