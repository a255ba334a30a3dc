# The channels alone: the test is the kernel driver. The order of locks is checked whatever the build.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/observe/channels.c ${CMAKE_SOURCE_DIR}/common/locks.c)
target_compile_definitions(${GM_TEST} PRIVATE GM_DEBUG_LOCKS=)
