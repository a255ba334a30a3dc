# A real gpumux-keeper holds what the daemon before had; the machine and its engines are the test's.
target_compile_definitions(${GM_TEST} PRIVATE GM_KEEPER="$<TARGET_FILE:gpumux-keeper>")
add_dependencies(${GM_TEST} gpumux-keeper)
gm_take(${GM_TEST} daemon engine/absents engine/keep engine/act/client engine/state/groups
  memory/kept keeper/client keeper/held service/process)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
target_link_options(${GM_TEST} PRIVATE
  -Wl,--wrap=calloc,--wrap=aligned_alloc,--wrap=mmap,--wrap=memfd_create,--wrap=fopen,--wrap=uv_poll_init
  -Wl,--wrap=gm_kept_put,--wrap=syscall)
