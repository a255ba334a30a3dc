gm_take(${GM_TEST} daemon service/seen)
