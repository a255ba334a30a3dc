# The mapper and the program's own mappings, alone: the test is the driver.
gm_take(${GM_TEST} shim driver/devices map/borrow map/imports map/mapper map/views tables/allocs tables/pages tables/vmm)
