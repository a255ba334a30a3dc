gm_take(${GM_TEST} daemon ctl/unshared ctl/say)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson)
