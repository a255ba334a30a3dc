# Reading traces, and what is written of them.
gm_take(${GM_TEST} daemon trace/trace ctl/export)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson m)
