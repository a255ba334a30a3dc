# The probe alone: the test is the driver, the GPU, and the channels.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/observe/probe.c)
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=clock_gettime,--wrap=nanosleep)
