# The options alone: the service library would want an engine.
foreach(source options options_values rules settings)
  target_sources(test_options PRIVATE ${CMAKE_SOURCE_DIR}/daemon/${source}.c)
endforeach()
