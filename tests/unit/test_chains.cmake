gm_take(${GM_TEST} daemon memory/pages)
