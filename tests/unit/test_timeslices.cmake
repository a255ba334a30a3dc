gm_take(${GM_TEST} daemon engine/step/timeslices)
