# One room of the engine, with the core below it.
foreach(source engine/policy engine/groups service/rules)
  target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/${source}.c)
endforeach()
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
