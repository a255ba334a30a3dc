# The NVML wrappers alone, before a simulated NVML that is loaded as a program loads it: the test plays boot, the
# accounts and the driver.
gm_take(${GM_TEST} shim entry/nvml)
target_link_libraries(${GM_TEST} PRIVATE ${CMAKE_DL_LIBS})
target_compile_definitions(${GM_TEST} PRIVATE GM_NVML_LIBRARY="$<TARGET_FILE:simnvml>")
add_dependencies(${GM_TEST} simnvml)
# NVIDIA's own header, where there is one: the layouts that the shim declares are checked against it.
find_path(GM_NVML_HEADER nvml.h HINTS ${GM_CUDA_HEADERS})
if(GM_NVML_HEADER)
  target_compile_definitions(${GM_TEST} PRIVATE GM_HAS_NVML_HEADER)
  target_include_directories(${GM_TEST} SYSTEM PRIVATE ${GM_NVML_HEADER})
endif()
