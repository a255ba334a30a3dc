target_compile_definitions(${GM_TEST} PRIVATE GM_KEEPER="$<TARGET_FILE:gpumux-keeper>")
add_dependencies(${GM_TEST} gpumux-keeper)
gm_take(${GM_TEST} daemon memory/kept keeper/client keeper/held)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=realloc)
