# The wrappers alone: the test is the gate, the driver, and all whom they call.
gm_take(${GM_TEST} shim entry/wrap)
