# Reading traces, and what is written of them: pages and JSON.
gm_take(${GM_TEST} daemon trace/trace ctl/tracks ctl/export ctl/report ctl/columns)
target_sources(${GM_TEST} PRIVATE $<FILTER:$<TARGET_OBJECTS:mux-ctl>,INCLUDE,/page_[a-z]+\\.c\\.o$>)
target_link_libraries(${GM_TEST} PRIVATE gm_cjson m)
