# The shim from its handlers to its socket, without what finds the driver, and without spares: what is freed goes back at
# once. The test plays the driver and the daemon.
file(GLOB GM_LINK_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/shim/*/*.c)
foreach(source driver/real entry/dlopen entry/dlsym entry/hints entry/ioctl entry/load entry/nvml entry/procaddr entry/wrap memory/spares)
  list(REMOVE_ITEM GM_LINK_SOURCES ${CMAKE_SOURCE_DIR}/shim/${source}.c)
endforeach()
target_sources(${GM_TEST} PRIVATE ${GM_LINK_SOURCES})
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
