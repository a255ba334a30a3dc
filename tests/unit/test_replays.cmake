# Executable graphs, and marking: the test is the driver.
gm_take(${GM_TEST} shim observe/replays observe/windows observe/templates tables/profiles tables/tensors tables/allocs tables/layouts tables/pages)
