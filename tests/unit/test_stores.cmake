# Pinned memory is simcuda's, linked as a program is, with -lcuda.
gm_take(${GM_TEST} daemon "memory/stores[a-z_]*" memory/disk memory/pages "memory/hostpool[a-z_]*" memory/cuda memory/files memory/kept keeper/client keeper/held)
target_link_libraries(${GM_TEST} PRIVATE gm_uv simcuda ${CMAKE_DL_LIBS})
