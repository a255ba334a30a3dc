# Groups, over clients and engines that are made here.
gm_take(${GM_TEST} daemon engine/state/groups)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
