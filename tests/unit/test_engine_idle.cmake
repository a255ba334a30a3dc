# One room of the engine; the test is what is around it.
gm_take(${GM_TEST} daemon engine/state/round memory/alarm engine/act/say engine/step/idle engine/state/groups engine/act/events)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
