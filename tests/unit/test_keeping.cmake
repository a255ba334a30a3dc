# The test is the keepers, the clock and what starts programs.
gm_take(${GM_TEST} daemon service/keeping keeper/client keeper/held)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
target_link_options(${GM_TEST} PRIVATE
  -Wl,--wrap=posix_spawn,--wrap=waitpid,--wrap=nanosleep,--wrap=clock_gettime,--wrap=geteuid,--wrap=syscall)
