# The gate alone, as test_gate.
include(${CMAKE_CURRENT_SOURCE_DIR}/test_gate.cmake)
add_test(NAME unit_gate_races_all COMMAND ${GM_TEST} --long)
set_tests_properties(unit_gate_races_all PROPERTIES TIMEOUT 1500 LABELS long)
