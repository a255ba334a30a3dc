# The driver is simcuda's, linked as a program is, with -lcuda.
target_compile_definitions(${GM_TEST} PRIVATE GM_KEEPER="$<TARGET_FILE:gpumux-keeper>")
add_dependencies(${GM_TEST} gpumux-keeper)
gm_take(${GM_TEST} daemon memory/cuda memory/frames "memory/hostpool[a-z_]*" "memory/stores[a-z_]*" memory/disk memory/pages memory/files memory/kept keeper/client keeper/held)
target_link_libraries(${GM_TEST} PRIVATE gm_uv simcuda ${CMAKE_DL_LIBS})
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=gm_pages_open,--wrap=aligned_alloc)
