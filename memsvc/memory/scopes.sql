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

-- name: by_alias
select s.id, s.kind, s.name, s.parent_id
from json_to_recordset(%(aliases)s::json) as given (place integer, kind text, host text, value text)
join memsvc.scope_aliases a
    on a.kind = given.kind
    and a.host = given.host
    and a.value = given.value
join memsvc.scopes s on s.tenant_id = a.tenant_id and s.id = a.scope_id
order by given.place
limit 1;

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

-- name: add_project
-- Two at once make one: the other one's row is found by its name afterwards.
insert into memsvc.scopes (tenant_id, kind, name)
values (memsvc.current_tenant(), 'project', %(name)s)
on conflict on constraint scope_name_unique do nothing;

-- name: add_aliases
-- An alias that names another project already stays where it is.
insert into memsvc.scope_aliases (tenant_id, kind, host, value, scope_id)
select memsvc.current_tenant(), given.kind, given.host, given.value, %(scope_id)s
from json_to_recordset(%(aliases)s::json) as given (kind text, host text, value text)
on conflict on constraint scope_aliases_pkey do nothing;
