# One room of the engine, with the core below it.
gm_take(${GM_TEST} daemon engine/round memory/alarm engine/policy engine/feed engine/events engine/groups service/rules)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
