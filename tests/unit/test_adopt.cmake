# Taking over, with the ledger and the table below; the test is the keeper, the driver and the rest.
gm_take(${GM_TEST} daemon engine/adopt)
target_link_libraries(${GM_TEST} PRIVATE gm_uv gm_cjson)
