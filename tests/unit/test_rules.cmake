target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/service/rules.c)
