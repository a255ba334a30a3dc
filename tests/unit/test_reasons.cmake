# The texts alone.
gm_take(${GM_TEST} daemon views/why)
