# The order is checked here whatever the build.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/common/locks.c
  ${CMAKE_SOURCE_DIR}/shim/tables/allocs.c ${CMAKE_SOURCE_DIR}/shim/tables/pages.c)
target_compile_definitions(${GM_TEST} PRIVATE GM_DEBUG_LOCKS=)
