# What parks a program, from its ioctl on, over the simulated driver.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/shim/entry/ioctl.c ${CMAKE_SOURCE_DIR}/shim/observe/channels.c
  ${CMAKE_SOURCE_DIR}/shim/observe/probe.c)
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
target_link_libraries(${GM_TEST} PRIVATE simcuda ${CMAKE_DL_LIBS})
