# One room of the engine: how long switches took.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/engine/switches.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
