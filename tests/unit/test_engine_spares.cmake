# One room of the engine, over the real table; the test is what is around it.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/engine/spares.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
