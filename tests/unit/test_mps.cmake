# The fake control daemon of simcuda.
target_link_libraries(${GM_TEST} PRIVATE gm_service)
target_compile_definitions(${GM_TEST} PRIVATE GM_FAKE_MPS="$<TARGET_FILE:sim_mps_control>")
add_dependencies(${GM_TEST} sim_mps_control)
