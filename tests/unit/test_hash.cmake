# Linked as a program is, with -lcuda: the kernel runs in simcuda.
gm_take(${GM_TEST} daemon memory/hash memory/cuda)
target_link_libraries(${GM_TEST} PRIVATE gm_hash_ptx gm_uv simcuda ${CMAKE_DL_LIBS})
