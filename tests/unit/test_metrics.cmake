gm_take(${GM_TEST} daemon ctl/metrics ctl/say)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson)
