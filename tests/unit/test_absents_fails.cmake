# As test_absents.
include(${CMAKE_CURRENT_SOURCE_DIR}/test_absents.cmake)
