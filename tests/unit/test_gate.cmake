# The gate alone: the test plays the start, the link and the daemon.
gm_take(${GM_TEST} shim gate/gate gate/hot gate/rhythm)
