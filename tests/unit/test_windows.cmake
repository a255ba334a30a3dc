# Marking alone: the test is the driver.
gm_take(${GM_TEST} shim observe/windows tables/allocs tables/layouts tables/pages)
