# Executable graphs and the uses counter: the test is the driver.
gm_take(${GM_TEST} shim observe/replays observe/uses tables/allocs tables/pages tables/layouts tables/vmm)
