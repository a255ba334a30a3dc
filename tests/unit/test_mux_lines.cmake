gm_take(${GM_TEST} daemon ctl/lines)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson)
