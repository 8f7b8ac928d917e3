-- name: begin
-- set_config with true is SET LOCAL; one statement, sent with the one that begins. The catalogue answers every login.
select to_regnamespace('memsvc') is not null as is_migrated,
    set_config('role', 'memsvc_service', true),
    set_config('memsvc.tenant_id', %(tenant_id)s, true),
    set_config('memsvc.principal_id', %(principal_id)s, true),
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('lock_timeout', %(lock_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
    set_config('synchronous_commit', case when %(durable)s then current_setting('synchronous_commit') else 'off' end, true),
    set_config('search_path', 'memsvc, extensions, public', true);

-- name: process
select pg_catalog.pg_backend_pid();
