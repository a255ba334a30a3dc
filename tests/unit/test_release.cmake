# Who gets a frame: the table is real, the test is what is around it.
gm_take(${GM_TEST} daemon engine/step/release engine/act/frames engine/act/exits)
target_link_libraries(${GM_TEST} PRIVATE gm_uv)
