# The table alone: the test keeps the accounts.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/tables/vmm.c)
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
