# What is noted in the engine and shown by the view, with the core below.
gm_take(${GM_TEST} daemon engine/log engine/refusals views/log)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
