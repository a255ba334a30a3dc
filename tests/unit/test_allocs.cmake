gm_take(${GM_TEST} shim tables/allocs tables/pages)
