gm_take(${GM_TEST} daemon ctl/table ctl/apps ctl/columns ctl/lines ctl/say)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson)
