# Two rooms of the engine, over the real table; the test is what is around it.
gm_take(${GM_TEST} daemon engine/step/spares engine/step/reclaim)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
