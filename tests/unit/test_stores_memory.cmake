# Pinned memory is simcuda's, linked as a program is, with -lcuda.
target_sources(${GM_TEST} PRIVATE
  ${CMAKE_SOURCE_DIR}/daemon/stores.c ${CMAKE_SOURCE_DIR}/daemon/disk.c
  ${CMAKE_SOURCE_DIR}/daemon/pages.c ${CMAKE_SOURCE_DIR}/daemon/hostpool.c
  ${CMAKE_SOURCE_DIR}/daemon/cuda.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv simcuda ${CMAKE_DL_LIBS})
