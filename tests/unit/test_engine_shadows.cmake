# One room of the engine; the test is what is around it.
gm_take(${GM_TEST} daemon engine/state/round memory/alarm engine/step/shadows engine/step/hashes engine/act/hashing engine/act/device engine/act/events)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
