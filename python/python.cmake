# SPDX-License-Identifier: Apache-2.0
# The Python binding: <build>/python/brant/_native.abi3.so, in the limited API. Without Python's headers there is none, and a word about it.
find_package(Python3 COMPONENTS Interpreter Development.Module QUIET)
if(Python3_Development.Module_FOUND)
  add_library(brant_native MODULE ${CMAKE_SOURCE_DIR}/python/brant/_native.c)
  target_include_directories(brant_native SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
  target_compile_options(brant_native PRIVATE ${BR_WARN})
  target_link_libraries(brant_native PRIVATE libbrant)
  set_target_properties(
    brant_native
    PROPERTIES PREFIX ""
               OUTPUT_NAME _native
               SUFFIX .abi3.so
               LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/brant
               BUILD_RPATH "$ORIGIN;$ORIGIN/../..;${DUCKDB_ROOT}"
               INSTALL_RPATH "$ORIGIN")
else()
  message(STATUS "no Python headers (python3-dev): the Python binding is not built")
endif()
