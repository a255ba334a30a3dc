# What parks a program, from its ioctl on, over the simulated driver.
gm_take(${GM_TEST} shim entry/ioctl observe/channels observe/probe)
target_link_libraries(${GM_TEST} PRIVATE simcuda ${CMAKE_DL_LIBS})
