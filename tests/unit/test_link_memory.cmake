# As test_link: the test plays the driver and the daemon.
include(${CMAKE_CURRENT_SOURCE_DIR}/test_link.cmake)
