gm_take(${GM_TEST} daemon views/record views/trace)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
