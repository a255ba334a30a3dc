target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/bench/place_model.c)
