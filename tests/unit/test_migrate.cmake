target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/migrate.c
  ${CMAKE_SOURCE_DIR}/daemon/hostpool.c ${CMAKE_SOURCE_DIR}/daemon/pages.c
  ${CMAKE_SOURCE_DIR}/daemon/cuda.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
