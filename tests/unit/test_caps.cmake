# What is beyond the GPU, with the groups and the core below it; the test is the engine around it.
gm_take(${GM_TEST} daemon engine/step/caps engine/step/room engine/state/groups)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
