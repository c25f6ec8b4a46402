# SPDX-License-Identifier: Apache-2.0
# Programs behind test_ipc_pyarrow.py.
foreach(n ipc_write ipc_read)
  add_executable(${n} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/interop/${n}.c)
  target_compile_options(${n} PRIVATE ${BR_WARN})
  target_include_directories(${n} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${n} PRIVATE br_arrow)
endforeach()
add_executable(scatter_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/scatter_bench.c)
target_compile_options(scatter_bench PRIVATE ${BR_WARN})
target_link_libraries(scatter_bench PRIVATE br_arrow)
