# The words of windows, and when windows end; the test is what is around them, and the program.
gm_take(${GM_TEST} daemon engine/step/windows engine/act/windows)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
