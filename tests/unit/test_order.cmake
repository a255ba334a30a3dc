gm_take(${GM_TEST} shim link/place)
