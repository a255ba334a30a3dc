# As test_session.
target_link_libraries(${GM_TEST} PRIVATE gm_service)
