# SPDX-License-Identifier: Apache-2.0
# The Python binding: <build>/python/brant/_native.abi3.so. It's in the limited API, so whichever Python 3's headers are found, it runs
# under any from 3.9 on: those of the first python3 on the path (pyenv, conda, a venv), else of Debian's (python3-dev). In a wheel's
# build (SKBUILD) it's required and lies beside the library and the programs; elsewhere its lack costs only the binding, and says so.
find_package(Python3 COMPONENTS Interpreter Development.Module QUIET)
if(NOT Python3_Development.Module_FOUND AND EXISTS /usr/bin/python3 AND NOT Python3_EXECUTABLE STREQUAL "/usr/bin/python3")
  set(Python3_EXECUTABLE /usr/bin/python3) # a python3 without its headers stood before the system's
  find_package(Python3 COMPONENTS Interpreter Development.Module QUIET)
endif()
if(Python3_Development.Module_FOUND)
  add_library(brant_native MODULE ${CMAKE_SOURCE_DIR}/python/brant/_native.c ${CMAKE_SOURCE_DIR}/python/brant/_read.c)
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
elseif(SKBUILD)
  message(FATAL_ERROR "the wheel needs Python's headers (Debian: python3-dev)")
else()
  message(WARNING "no Python headers (Debian: python3-dev): the Python binding is not built")
endif()
# What workers of a build tree start for users' functions (an installed one has it in the package).
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/python/brant)
foreach(f udf_process.py udf_run.py)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/python/brant/${f} ${CMAKE_BINARY_DIR}/python/brant/${f} SYMBOLIC)
endforeach()
if(SKBUILD)
  include(${CMAKE_SOURCE_DIR}/python/wheel.cmake)
endif()
