target_link_libraries(${GM_TEST} PRIVATE gm_spank)
