target_link_libraries(test_users PRIVATE gm_service)
target_link_options(test_users PRIVATE -Wl,--wrap=calloc)
