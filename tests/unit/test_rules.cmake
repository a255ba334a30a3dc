gm_take(${GM_TEST} daemon service/rules service/users)
