# One room of the engine: how long switches took.
gm_take(${GM_TEST} daemon engine/state/round memory/alarm engine/step/switches)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
