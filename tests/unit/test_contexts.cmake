# The list of contexts and the handlers that make and destroy them, alone: the test is the driver,
# and says when there is no host memory.
foreach(source gate/contexts handlers/contexts)
  target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/${source}.c)
endforeach()
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=realloc)
