# The options alone: the service library would want an engine.
foreach(source service/options service/options_load service/rules)
  target_sources(test_options PRIVATE ${CMAKE_SOURCE_DIR}/daemon/${source}.c)
endforeach()
