# What is noted in the engine and shown by the view, with the core below.
gm_take(${GM_TEST} daemon engine/act/events engine/step/log engine/step/refusals views/journal views/log views/tape views/tell trace/trace views/why)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
