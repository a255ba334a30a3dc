gm_take(${GM_TEST} daemon memory/alarm)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
