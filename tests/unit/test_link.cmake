# The shim from its handlers to its socket, without what finds the driver, and without spares: what is freed goes back at
# once. The test plays the driver and the daemon.
set(without "driver/real|entry/ioctl|entry/load|entry/nvml|entry/procaddr|entry/wrap")
target_sources(${GM_TEST} PRIVATE "$<FILTER:$<TARGET_OBJECTS:gm_shim_logic>,EXCLUDE,/(${without})\\.c\\.o$>")
target_compile_definitions(${GM_TEST} PRIVATE __CUDA_API_VERSION_INTERNAL)
foreach(name put take release expect arrive miss sums taken lose hold)
  target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=gm_freed_${name})
endforeach()
set_tests_properties(${GM_TEST_NAME} PROPERTIES COST 20) # it waits out what the shim is patient for
