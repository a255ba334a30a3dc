target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/bench/ratios.c)
target_link_libraries(${GM_TEST} PRIVATE m)
