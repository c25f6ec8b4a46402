# SPDX-License-Identifier: Apache-2.0
# Programs that test_flight_pyarrow.py talks to, and the transport's bench.
foreach(p flight_server flight_client)
  add_executable(interop-${p} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/${p}.c)
  target_compile_options(interop-${p} PRIVATE ${BR_WARN})
  target_link_libraries(interop-${p} PRIVATE br_flight)
endforeach()
add_executable(flight_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/flight_bench.c)
target_compile_options(flight_bench PRIVATE ${BR_WARN})
target_link_libraries(flight_bench PRIVATE br_flight)
