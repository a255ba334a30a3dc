target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/views/record.c ${CMAKE_SOURCE_DIR}/daemon/views/trace.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
