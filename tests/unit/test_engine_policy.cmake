# One room of the engine, with the core below it.
gm_take(${GM_TEST} daemon engine/state/round memory/alarm engine/step/policy engine/step/feed engine/step/features engine/act/events engine/state/groups service/rules service/users)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
