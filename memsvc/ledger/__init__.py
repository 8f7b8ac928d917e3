"""The job ledger: leases on rows, decided by the database's clock."""
