target_sources(${GM_TEST} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_ledger.c)
