# The state machine of a lost daemon, alone.
gm_take(${GM_TEST} shim link/comeback)
