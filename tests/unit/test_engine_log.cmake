# Two rooms of the engine, with the core below them.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/engine/log.c
  ${CMAKE_SOURCE_DIR}/daemon/engine/refusals.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
