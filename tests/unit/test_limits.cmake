gm_take(${GM_TEST} daemon memory/limits)
