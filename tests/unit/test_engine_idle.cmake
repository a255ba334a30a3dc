# One room of the engine; the test is what is around it.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/engine/idle.c
  ${CMAKE_SOURCE_DIR}/daemon/engine/groups.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
