# The uses counter alone: the test is the driver.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/observe/uses.c ${CMAKE_SOURCE_DIR}/shim/tables/allocs.c
  ${CMAKE_SOURCE_DIR}/shim/tables/vmm.c)
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
