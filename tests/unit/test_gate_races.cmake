# The gate alone, as test_gate.
include(${CMAKE_CURRENT_SOURCE_DIR}/test_gate.cmake)
