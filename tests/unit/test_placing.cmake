# Sessions in front of an engine that the test itself plays.
target_link_libraries(test_placing PRIVATE gm_service)
