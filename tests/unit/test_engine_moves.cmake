# Two rooms of the engine; the test is what is around them.
gm_take(${GM_TEST} daemon engine/round memory/alarm engine/moves engine/chunks engine/shadows engine/hashes engine/copies engine/release engine/backoff engine/events)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
