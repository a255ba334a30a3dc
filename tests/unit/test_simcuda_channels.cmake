# Linked as a program is, with -lcuda; its own ioctl comes before the driver's.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/tests/simcuda/roles.c)
target_link_libraries(${GM_TEST} PRIVATE simcuda ${CMAKE_DL_LIBS} m)
