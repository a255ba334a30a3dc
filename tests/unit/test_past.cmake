gm_take(${GM_TEST} daemon service/past)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
