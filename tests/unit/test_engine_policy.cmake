# One room of the engine, with the core below it.
gm_take(${GM_TEST} daemon engine/state/round memory/alarm engine/step/settings engine/step/sizes engine/step/policy engine/step/pauses engine/step/rules engine/step/wishes engine/step/set engine/step/tuning engine/step/feed engine/step/features engine/act/events engine/state/groups service/rules service/users)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
