# One room of the engine; the test is what is around it, and memory runs out when it says so.
gm_take(${GM_TEST} daemon engine/state/round memory/alarm engine/act/say engine/act/batches engine/act/events)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=calloc)
