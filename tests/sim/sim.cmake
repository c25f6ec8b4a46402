# SPDX-License-Identifier: Apache-2.0
# The simulation of the scheduler: a library for tests/sim/test_*.c ("links: br_sim"), the program `sim SEEDS [START] [trace]`, and
# the scheduler's benchmark. To be included before br_tests(sim).
add_library(br_sim STATIC EXCLUDE_FROM_ALL
  ${CMAKE_SOURCE_DIR}/tests/sim/sim_queue.c ${CMAKE_SOURCE_DIR}/tests/sim/sim_dag.c ${CMAKE_SOURCE_DIR}/tests/sim/sim_worker.c
  ${CMAKE_SOURCE_DIR}/tests/sim/sim_task.c ${CMAKE_SOURCE_DIR}/tests/sim/sim_trace.c ${CMAKE_SOURCE_DIR}/tests/sim/sim_allow.c
  ${CMAKE_SOURCE_DIR}/tests/sim/sim_needs.c ${CMAKE_SOURCE_DIR}/tests/sim/sim_adapt.c
  ${CMAKE_SOURCE_DIR}/tests/sim/sim_coord.c ${CMAKE_SOURCE_DIR}/tests/sim/sim_model.c ${CMAKE_SOURCE_DIR}/tests/sim/sim_faults.c
  ${CMAKE_SOURCE_DIR}/tests/sim/sim_run.c)
target_compile_options(br_sim PRIVATE ${BR_WARN})
target_include_directories(br_sim PUBLIC ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(br_sim PUBLIC br_schedule)
add_executable(sim EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/sim/sim_main.c)
target_compile_options(sim PRIVATE ${BR_WARN})
target_link_libraries(sim PRIVATE br_sim)
add_executable(sched_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/sched_bench.c)
target_compile_options(sched_bench PRIVATE ${BR_WARN})
target_link_libraries(sched_bench PRIVATE br_schedule)
