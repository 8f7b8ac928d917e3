-- name: readable
select s.id, s.kind, s.name, s.parent_id
from memsvc.scopes s
where s.id in (select memsvc.permitted_scopes('read'))
order by array_position(array['global', 'client', 'project'], s.kind), s.name;

-- name: named
select s.id, s.kind, s.name, s.parent_id
from memsvc.scopes s
where s.kind = %(kind)s
  and s.name = %(name)s;

-- name: matches
-- A folder's path finds what a person named by it before what was seen there. What was seen there does not carry a
-- repository into the project of another one: /workspace is a folder on many machines and of many repositories.
with given as (
    select g.place, g.kind, g.host, g.value
    from json_to_recordset(%(aliases)s::json) as g (place integer, kind text, host text, value text)
)
select given.place, a.kind, s.id, s.kind, s.name, s.parent_id,
    a.kind = 'cwd'
        and exists (select from given other where other.kind = 'git_origin')
        and exists (
            select from memsvc.scope_aliases other
            where other.tenant_id = a.tenant_id
              and other.scope_id = a.scope_id
              and other.kind = 'git_origin'
        ) as of_another_origin
from given
join memsvc.scope_aliases a
    on a.kind in (given.kind, case given.kind when 'cwd' then 'explicit' end)
    and a.host = given.host
    and a.value = given.value
join memsvc.scopes s on s.tenant_id = a.tenant_id and s.id = a.scope_id
order by given.place, array_position(array['git_origin', 'root', 'explicit', 'cwd'], a.kind);

-- name: around
select s.id, s.kind, s.name, s.parent_id
from memsvc.scopes s
where s.kind = 'global'
   or s.id = %(scope_id)s
   or s.id = (select p.parent_id from memsvc.scopes p where p.tenant_id = s.tenant_id and p.id = %(scope_id)s)
order by array_position(array['project', 'client', 'global'], s.kind), s.name;

-- name: is_writable
select %(scope_id)s::uuid in (select memsvc.permitted_scopes('write'));

-- name: may_add
select memsvc.permits_tenant('admin');

-- name: listed
select s.id, s.kind, s.name, s.parent_id,
    (select p.name from memsvc.scopes p where p.tenant_id = s.tenant_id and p.id = s.parent_id) as client,
    (select coalesce(
            json_agg(
                json_build_object('kind', a.kind, 'host', a.host, 'value', a.value)
                order by array_position(array['git_origin', 'root', 'explicit', 'cwd'], a.kind), a.host, a.value),
            '[]')
        from memsvc.scope_aliases a
        where a.tenant_id = s.tenant_id and a.scope_id = s.id) as aliases,
    (select count(*) from memsvc.memories m
        where m.tenant_id = s.tenant_id and m.scope_id = s.id and memsvc.is_current(m)) as memories
from memsvc.scopes s
where s.id in (select memsvc.permitted_scopes('read'))
order by array_position(array['global', 'client', 'project'], s.kind), s.name;

-- name: add
-- Two at once make one: the other one's row is found by its name afterwards.
insert into memsvc.scopes (tenant_id, kind, name, parent_id)
values (memsvc.current_tenant(), %(kind)s, %(name)s, %(parent_id)s)
on conflict on constraint scope_name_unique do nothing
returning id;

-- name: rename
-- Only a project that goes by one of the given names, and of which no git origin is known.
update memsvc.scopes s set
    name = %(name)s
where s.id = %(scope_id)s
  and s.kind = 'project'
  and s.name = any (%(old)s::text[])
  and not exists (
    select from memsvc.scope_aliases a
    where a.tenant_id = s.tenant_id
      and a.scope_id = s.id
      and a.kind = 'git_origin')
returning s.id;

-- name: take_folders
-- Folders of this repository that were seen before its origin was known, from projects named after them; where something
-- was remembered in such a project, the folder stays with it.
update memsvc.scope_aliases a set
    scope_id = %(scope_id)s
from json_to_recordset(%(aliases)s::json) as given (kind text, host text, value text), memsvc.scopes s
where a.kind = given.kind
  and a.kind <> 'git_origin'
  and a.host = given.host
  and a.value = given.value
  and s.tenant_id = a.tenant_id
  and s.id = a.scope_id
  and s.id <> %(scope_id)s
  and s.name in (a.value, a.host || ':' || a.value)
  and not exists (
    select from memsvc.scope_aliases other
    where other.tenant_id = s.tenant_id
      and other.scope_id = s.id
      and other.kind = 'git_origin')
  and not exists (
    select from memsvc.memories m
    where m.tenant_id = s.tenant_id
      and m.scope_id = s.id
      and m.rule_set is null
      and m.retired_at is null);

-- name: add_aliases
-- An alias that names another project already stays where it is; who may not name projects leaves the names alone.
insert into memsvc.scope_aliases (tenant_id, kind, host, value, scope_id)
select memsvc.current_tenant(), given.kind, given.host, given.value, %(scope_id)s
from json_to_recordset(%(aliases)s::json) as given (kind text, host text, value text)
where memsvc.permits_tenant('admin')
on conflict on constraint scope_aliases_pkey do nothing
returning value;
