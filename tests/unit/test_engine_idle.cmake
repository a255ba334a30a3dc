# Who is idle, and who loses a turn that it does not use; the test is what is around it, and the program.
gm_take(${GM_TEST} daemon engine/step/idle)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
