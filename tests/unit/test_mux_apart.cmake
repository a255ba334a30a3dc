gm_take(${GM_TEST} daemon ctl/apart)
