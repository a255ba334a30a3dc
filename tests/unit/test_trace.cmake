# The codec alone.
target_sources(test_trace PRIVATE ${CMAKE_SOURCE_DIR}/daemon/views/trace.c)
