# One client and its process; the keeper is none.
gm_take(${GM_TEST} daemon engine/act/client engine/state/groups)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=uv_poll_init,--wrap=syscall)
