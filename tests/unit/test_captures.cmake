# The list of captures and their handlers, alone: the test is the driver, the gate and the contexts.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/gate/captures.c ${CMAKE_SOURCE_DIR}/shim/handlers/captures.c)
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
