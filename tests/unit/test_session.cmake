# Sessions, in front of an engine that the test itself plays.
target_link_libraries(test_session PRIVATE gm_service)
target_link_options(test_session PRIVATE -Wl,--wrap=clock_gettime -Wl,--wrap=close)
