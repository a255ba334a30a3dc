# The gate alone: the test plays the start, the link and the daemon.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/gate/gate.c ${CMAKE_SOURCE_DIR}/shim/gate/hot.c)
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
