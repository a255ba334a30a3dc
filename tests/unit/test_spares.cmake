target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/memory/spares.c)
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
