# The shim from its handlers to its socket: the test plays the driver and the daemon.
foreach(source accounts allocs boot captures contexts drain gate handlers_contexts handlers_memory handlers_sharing link mapper
    release sharing uses)
  target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/${source}.c)
endforeach()
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
