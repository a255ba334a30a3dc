# Executable graphs, and marking: the test is the driver.
gm_take(${GM_TEST} shim observe/replays observe/windows tables/allocs tables/layouts tables/pages)
