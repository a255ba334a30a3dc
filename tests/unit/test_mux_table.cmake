target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/ctl/table.c ${CMAKE_SOURCE_DIR}/daemon/ctl/lines.c)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson)
