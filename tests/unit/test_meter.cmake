# Before the simulated NVML, which the loader finds as it would find the real one.
gm_take(${GM_TEST} daemon memory/meter)
target_link_libraries(${GM_TEST} PRIVATE gm_uv ${CMAKE_DL_LIBS})
add_dependencies(${GM_TEST} simnvml)
set_property(TEST ${GM_TEST_NAME} PROPERTY ENVIRONMENT "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:simnvml>")
