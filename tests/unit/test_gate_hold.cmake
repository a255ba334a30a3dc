# The gate alone, as test_gate: the test plays boot, link and the daemon.
include(${CMAKE_CURRENT_SOURCE_DIR}/test_gate.cmake)
