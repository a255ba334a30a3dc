# Traces of made-up events.
gm_take(${GM_TEST} daemon views/tape trace/trace)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson)
