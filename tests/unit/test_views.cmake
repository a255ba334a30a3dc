# Views at work: the mapper and the program's calls as the link thread has them; the test is the driver.
gm_take(${GM_TEST} shim driver/devices map/borrow map/imports map/mapper map/views tables/allocs tables/pages tables/vmm)
