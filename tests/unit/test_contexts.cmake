# The list of contexts and the handlers that make and destroy them, alone: the test is the driver,
# and says when there is no host memory.
gm_take(${GM_TEST} shim gate/contexts handlers/contexts tables/layouts)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=realloc)
