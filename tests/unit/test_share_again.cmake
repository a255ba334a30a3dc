# The handlers of sharing alone: the test is the driver, the gate, the daemon and the clock.
gm_take(${GM_TEST} shim handlers/sharing)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=clock_gettime,--wrap=nanosleep)
