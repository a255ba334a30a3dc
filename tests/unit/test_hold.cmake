# Holding and parking, alone: the test is the gate and the channels.
foreach(source hold park)
  target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/gate/${source}.c)
endforeach()
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
