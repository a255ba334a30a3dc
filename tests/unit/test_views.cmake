# Views at work: the mapper and the program's calls as the link thread has them; the test is the driver.
foreach(source driver/devices map/borrow map/imports map/mapper map/views tables/allocs tables/vmm)
  target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/${source}.c)
endforeach()
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
