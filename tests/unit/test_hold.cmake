# Holding and parking, alone: the test is the gate and the channels.
foreach(source hold park)
  gm_take(${GM_TEST} shim gate/${source})
endforeach()
