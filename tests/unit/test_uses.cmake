# The uses counter alone: the test is the driver.
gm_take(${GM_TEST} shim observe/uses tables/allocs tables/pages tables/layouts tables/vmm)
