# What copies and sets mark, by the types of their arguments: the test is the driver.
gm_take(${GM_TEST} shim observe/windows observe/templates tables/profiles tables/tensors tables/allocs tables/layouts tables/pages)
