gm_take(${GM_TEST} daemon views/record trace/trace)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
