target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/memory/hostpool.c
  ${CMAKE_SOURCE_DIR}/daemon/memory/pages.c ${CMAKE_SOURCE_DIR}/daemon/memory/cuda.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
