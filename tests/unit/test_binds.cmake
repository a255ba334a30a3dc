gm_take(${GM_TEST} daemon engine/binds)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=clock_gettime)
