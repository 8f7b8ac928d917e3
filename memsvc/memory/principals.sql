-- name: kind_of_caller
select kind
from memsvc.principals
where tenant_id = memsvc.current_tenant()
  and id = memsvc.current_principal();
