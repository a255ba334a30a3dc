# The list of captures and their handlers, alone: the test is the driver, the gate and the contexts.
gm_take(${GM_TEST} shim gate/captures handlers/captures)
