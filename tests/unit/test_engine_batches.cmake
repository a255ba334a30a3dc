# One room of the engine; the test is what is around it, and memory runs out when it says so.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/engine/batches.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=calloc)
