gm_take(${GM_TEST} shim tables/pages)
