# The options alone: the service library would want an engine.
target_sources(test_options PRIVATE ${CMAKE_SOURCE_DIR}/daemon/options.c)
