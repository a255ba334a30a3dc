# Sessions and the listening socket, in front of an engine that the test itself plays.
target_link_libraries(test_session PRIVATE gm_service)
