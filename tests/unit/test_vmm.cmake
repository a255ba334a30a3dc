# The table alone: the test keeps the accounts.
gm_take(${GM_TEST} shim tables/vmm)
