# The probe alone: the test is the driver, the GPU, and the channels.
gm_take(${GM_TEST} shim observe/probe)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=clock_gettime,--wrap=nanosleep)
