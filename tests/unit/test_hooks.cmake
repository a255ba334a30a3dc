# The headers that the tables must cover, and the library whose exports they name.
target_compile_definitions(test_hooks PRIVATE
  GM_CUDA_HEADERS="${GM_CUDA_HEADERS}" GM_LIBRARY="$<TARGET_FILE:gpumux>")
if(GM_SANITIZE)
  target_compile_definitions(test_hooks PRIVATE GM_HAS_SANITIZER)
endif()
add_dependencies(test_hooks gpumux)
