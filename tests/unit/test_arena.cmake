target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/tables/arena.c)
