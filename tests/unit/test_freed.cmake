gm_take(${GM_TEST} shim memory/freed)
