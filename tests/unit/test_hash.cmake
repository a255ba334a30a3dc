# Linked as a program is, with -lcuda: the kernel runs in simcuda.
target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/memory/hash.c ${CMAKE_SOURCE_DIR}/daemon/memory/cuda.c)
target_link_libraries(${GM_TEST} PRIVATE gm_hash_ptx gm_uv simcuda ${CMAKE_DL_LIBS})
