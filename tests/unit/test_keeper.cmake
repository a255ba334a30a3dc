target_compile_definitions(${GM_TEST} PRIVATE GM_KEEPER="$<TARGET_FILE:gpumux-keeper>")
add_dependencies(${GM_TEST} gpumux-keeper)
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/keeper/client.c ${CMAKE_SOURCE_DIR}/daemon/keeper/held.c)
