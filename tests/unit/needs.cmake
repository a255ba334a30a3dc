# What unit tests need beside gm_core, gm_common and cmocka: here a test_<x>.c that is not named needs nothing. What it
# does not take the test plays itself.
#
# gm_needs(NAMES [DAEMON object...] [SHIM object...] [SOURCES file...] [LINK library...] [DEFINE word...]
#          [BUILD target...] [WRAP function...] [KEEPER] [SIMCUDA])
#   DAEMON, SHIM  objects that are built for these, by regular expressions of their paths there
#   WRAP          functions that the test has instead (--wrap)
#   KEEPER        a real gpumux-keeper, and what speaks to it
#   SIMCUDA       linked as a program is, with -lcuda
function(gm_needs names)
  cmake_parse_arguments(need "KEEPER;SIMCUDA" "" "DAEMON;SHIM;SOURCES;LINK;DEFINE;BUILD;WRAP" ${ARGN})
  if(need_KEEPER)
    list(APPEND need_DAEMON memory/kept keeper/client keeper/held)
    list(APPEND need_DEFINE "GM_KEEPER=\"$<TARGET_FILE:gpumux-keeper>\"")
    list(APPEND need_BUILD gpumux-keeper)
  endif()
  if(need_SIMCUDA)
    list(APPEND need_LINK simcuda ${CMAKE_DL_LIBS} m)
  endif()
  list(TRANSFORM need_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/)
  list(TRANSFORM need_WRAP PREPEND -Wl,--wrap=)
  foreach(name ${names})
    set(test test_${name})
    if(NOT TARGET ${test}) # the thread sanitizer's build has not all
      continue()
    endif()
    # What the test never comes to need not be there: a call of it would end the test, and name it.
    target_link_options(${test} PRIVATE -no-pie -Wl,--unresolved-symbols=ignore-all)
    if(need_DAEMON)
      gm_take(${test} daemon ${need_DAEMON})
      target_link_libraries(${test} PRIVATE gm_uv gm_cjson)
    endif()
    if(need_SHIM)
      gm_take(${test} shim ${need_SHIM})
    endif()
    target_sources(${test} PRIVATE ${need_SOURCES})
    target_link_libraries(${test} PRIVATE ${need_LINK})
    target_compile_definitions(${test} PRIVATE ${need_DEFINE})
    target_link_options(${test} PRIVATE ${need_WRAP})
    if(need_BUILD)
      add_dependencies(${test} ${need_BUILD})
    endif()
  endforeach()
endfunction()

# --- the daemon ---

gm_needs("absents;absents_fails" KEEPER DAEMON engine/absents engine/keep engine/act/client engine/state/client engine/state/groups service/process
  WRAP calloc aligned_alloc mmap memfd_create fopen uv_poll_init gm_kept_put syscall)
gm_needs(adopt DAEMON engine/adopt)
gm_needs(alarm DAEMON memory/alarm)
gm_needs(before KEEPER DAEMON service/before)
gm_needs(binds DAEMON engine/binds WRAP clock_gettime)
gm_needs("bounds;control;places;placing;server" LINK gm_service)
gm_needs(caps DAEMON engine/step/caps engine/step/room engine/state/groups)
gm_needs(chains DAEMON memory/pages)
gm_needs(client DAEMON engine/act/client engine/state/client engine/state/groups WRAP uv_poll_init syscall)
gm_needs(engine_idle DAEMON engine/step/gates)
gm_needs(engine_log DAEMON engine/state/actions engine/state/events engine/step/log engine/step/memory views/journal views/log
  views/tape views/tell views/why trace/trace)
gm_needs(engine_policy DAEMON engine/state/round engine/state/groups engine/state/events engine/step/feed engine/step/set
  service/rules service/users)
gm_needs(engine_shares DAEMON engine/state/events engine/step/shares)
gm_needs(engine_waiting DAEMON engine/step/waiting)
gm_needs(engine_windows DAEMON engine/step/windows engine/act/windows engine/state/actions)
gm_needs(export DAEMON trace/trace ctl/export LINK m)
gm_needs(files DAEMON memory/files)
gm_needs("fit;learn" LINK gm_profile)
gm_needs(groups DAEMON engine/state/groups)
gm_needs(hash SIMCUDA DAEMON memory/hash memory/cuda LINK gm_hash_ptx)
gm_needs(host DAEMON engine/step/host)
gm_needs("hostpool;hostpool_units" DAEMON "memory/hostpool[a-z_]*" memory/pages memory/cuda memory/files memory/kept
  keeper/client keeper/held)
gm_needs(keeper KEEPER)
gm_needs(kept KEEPER WRAP realloc)
gm_needs(keeping DAEMON service/keeping keeper/client keeper/held
  WRAP posix_spawn waitpid nanosleep clock_gettime geteuid syscall)
gm_needs(ledger SOURCES tests/fuzz/fuzz_ledger.c)
gm_needs(limits DAEMON memory/limits)
gm_needs(meter DAEMON memory/meter LINK ${CMAKE_DL_LIBS} BUILD simnvml)
gm_needs(metrics DAEMON ctl/metrics ctl/say)
gm_needs("mover;mover_any" DAEMON memory/mover "memory/hostpool[a-z_]*" memory/pages memory/cuda memory/files memory/kept
  keeper/client keeper/held)
gm_needs(mps LINK gm_service DEFINE "GM_FAKE_MPS=\"$<TARGET_FILE:sim_mps_control>\"" BUILD sim_mps_control)
gm_needs(mux_apart DAEMON ctl/apart)
gm_needs(mux_lines DAEMON ctl/lines)
gm_needs(mux_table DAEMON ctl/table ctl/apps ctl/columns ctl/lines ctl/say)
gm_needs(mux_unshared DAEMON ctl/unshared ctl/say)
gm_needs(options DAEMON service/options service/options_load service/rules service/users)
gm_needs(outlives KEEPER SIMCUDA DAEMON memory/cuda memory/frames "memory/hostpool[a-z_]*" "memory/stores[a-z_]*" memory/disk
  memory/pages memory/files WRAP gm_pages_open aligned_alloc)
gm_needs(past DAEMON service/past)
gm_needs(process DAEMON service/process)
gm_needs(reasons DAEMON views/why)
gm_needs(release DAEMON engine/step/shares engine/step/frames engine/step/exits)
gm_needs(rules DAEMON service/rules service/users)
gm_needs(samples LINK gm_bench_report)
gm_needs(seen DAEMON service/seen)
gm_needs(session LINK gm_service WRAP clock_gettime close)
gm_needs(session_rejoin LINK gm_service WRAP gm_process_started realloc)
gm_needs(spank_option LINK gm_spank)
gm_needs("stores;stores_memory" SIMCUDA DAEMON "memory/stores[a-z_]*" memory/disk memory/pages "memory/hostpool[a-z_]*"
  memory/cuda memory/files memory/kept keeper/client keeper/held)
gm_needs(tape DAEMON views/tape trace/trace)
gm_needs(timeslices DAEMON engine/step/turns)
gm_needs(trace DAEMON trace/trace)
gm_needs(users LINK gm_service WRAP calloc)

# --- the shim ---

set(marking observe/windows observe/templates tables/profiles tables/tensors tables/allocs tables/layouts tables/pages)
gm_needs(ahead SHIM memory/ahead)
gm_needs(allocs SHIM tables/allocs tables/pages)
gm_needs(arena SHIM tables/arena)
gm_needs(captures SHIM gate/captures handlers/captures)
gm_needs(channels SOURCES shim/observe/channels.c common/locks.c DEFINE GM_DEBUG_LOCKS=) # the order of locks is checked
gm_needs(comeback SHIM link/comeback)
gm_needs(contexts SHIM gate/contexts handlers/contexts tables/layouts WRAP realloc)
gm_needs("copies;windows" SHIM ${marking})
gm_needs(drain SHIM gate/drain)
gm_needs(freed SHIM memory/freed)
gm_needs("gate;gate_hold;gate_races" SHIM gate/gate gate/hot gate/rhythm)
gm_needs(hold SHIM gate/park)
gm_needs(locks SOURCES common/locks.c shim/tables/allocs.c shim/tables/pages.c DEFINE GM_DEBUG_LOCKS=)
gm_needs("mapper;views" SHIM driver/devices map/borrow map/mapper tables/allocs tables/pages tables/vmm)
gm_needs(nvml SHIM entry/nvml LINK ${CMAKE_DL_LIBS} DEFINE "GM_NVML_LIBRARY=\"$<TARGET_FILE:simnvml>\"" BUILD simnvml)
gm_needs(order SHIM link/place)
gm_needs(pages SHIM tables/pages)
gm_needs(parking SIMCUDA SHIM entry/ioctl observe/channels observe/probe)
gm_needs(probe SHIM observe/probe WRAP clock_gettime nanosleep)
gm_needs(replays SHIM observe/replays ${marking} WRAP realloc calloc)
gm_needs(rhythm SHIM gate/rhythm)
gm_needs(share_again SHIM handlers/sharing WRAP clock_gettime nanosleep)
gm_needs("simcuda;simcuda_channels;simcuda_work" SIMCUDA SOURCES tests/simcuda/roles.c)
gm_needs(templates SHIM ${marking} WRAP scandir)
gm_needs(vmm SHIM tables/vmm)
gm_needs(wrap SHIM entry/wrap)

# The shim from its handlers to its socket, without what finds the driver, and without spares: what is freed goes back at
# once. The test plays the driver and the daemon.
set(links link link_contexts link_lost link_memory queries sharing unswappable)
set(without "driver/real|entry/ioctl|entry/load|entry/nvml|entry/procaddr|entry/wrap")
set(freed put take release expect arrive miss sums taken lose hold)
list(TRANSFORM freed PREPEND gm_freed_)
gm_needs("${links}" DEFINE __CUDA_API_VERSION_INTERNAL WRAP ${freed})
foreach(name ${links})
  if(TARGET test_${name})
    target_sources(test_${name} PRIVATE "$<FILTER:$<TARGET_OBJECTS:gm_shim_logic>,EXCLUDE,/(${without})\\.c\\.o$>")
    set_tests_properties(unit_${name} PROPERTIES COST 20) # it waits out what the shim is patient for
  endif()
endforeach()

# --- what else is special ---

gm_needs(hooks DEFINE "GM_CUDA_HEADERS=\"${GM_CUDA_HEADERS}\"" "GM_LIBRARY=\"$<TARGET_FILE:gpumux>\"" BUILD gpumux)
if(GM_SANITIZE)
  gm_needs(hooks DEFINE GM_HAS_SANITIZER)
endif()
find_path(GM_NVML_HEADER nvml.h HINTS ${GM_CUDA_HEADERS})
if(GM_NVML_HEADER AND TARGET test_nvml) # the layouts that the shim declares are checked against NVIDIA's
  gm_needs(nvml DEFINE GM_HAS_NVML_HEADER)
  target_include_directories(test_nvml SYSTEM PRIVATE ${GM_NVML_HEADER})
endif()
if(TARGET test_meter) # the loader finds the simulated NVML as it would find the real one
  set_property(TEST unit_meter PROPERTY ENVIRONMENT "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:simnvml>")
endif()
add_test(NAME unit_gate_races_all COMMAND test_gate_races --long)
set_tests_properties(unit_gate_races_all PROPERTIES TIMEOUT 1500 LABELS long)
