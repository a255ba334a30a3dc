gm_take(${GM_TEST} shim gate/drain gate/lasting)
