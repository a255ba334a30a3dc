# As test_session.
target_link_libraries(${GM_TEST} PRIVATE gm_service)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=gm_process_started -Wl,--wrap=realloc)
