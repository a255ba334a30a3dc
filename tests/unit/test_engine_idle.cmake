# One room of the engine; the test is what is around it.
gm_take(${GM_TEST} daemon engine/round memory/alarm engine/say engine/idle engine/groups engine/events)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
