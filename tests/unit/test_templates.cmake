# What launches touch by profiles: the test is the driver.
gm_take(${GM_TEST} shim observe/windows observe/templates tables/profiles tables/tensors tables/allocs tables/layouts
  tables/pages)
target_link_options(${GM_TEST} PRIVATE -Wl,--wrap=scandir)
