gm_take(${GM_TEST} daemon memory/mover "memory/hostpool[a-z_]*" memory/pages memory/cuda memory/files memory/kept keeper/client keeper/held)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
