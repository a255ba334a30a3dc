# Pinned memory is simcuda's, linked as a program is, with -lcuda.
target_sources(${GM_TEST} PRIVATE
  ${CMAKE_SOURCE_DIR}/daemon/memory/stores.c ${CMAKE_SOURCE_DIR}/daemon/memory/disk.c
  ${CMAKE_SOURCE_DIR}/daemon/memory/pages.c ${CMAKE_SOURCE_DIR}/daemon/memory/hostpool.c
  ${CMAKE_SOURCE_DIR}/daemon/memory/cuda.c)
target_link_libraries(${GM_TEST} PRIVATE gm_uv simcuda ${CMAKE_DL_LIBS})
