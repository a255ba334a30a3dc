# What is noted in the engine and shown by the view, with the core below.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/engine/log.c
  ${CMAKE_SOURCE_DIR}/daemon/engine/refusals.c ${CMAKE_SOURCE_DIR}/daemon/views/log.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
