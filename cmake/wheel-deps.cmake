# SPDX-License-Identifier: Apache-2.0
# Before project(), and only when pip builds a wheel (SKBUILD): what a source tree lacks is brought by deps/fetch.sh, as `make build` does.
# Nothing is called when everything is there, so a machine without apt can bring its own libraries.
set(need "${CMAKE_CURRENT_SOURCE_DIR}/build/deps")
if(DEFINED BRANT_DEPS_DIR)
  set(need "${BRANT_DEPS_DIR}")
elseif(DEFINED ENV{BRANT_DEPS_DIR})
  set(need "$ENV{BRANT_DEPS_DIR}")
  set(BRANT_DEPS_DIR "${need}" CACHE PATH "what deps/fetch.sh brought")
endif()
execute_process(
  COMMAND pkg-config --exists libnghttp2 libuv openssl libprotobuf-c jansson liblz4 libzstd libxxhash libedit
  RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
find_program(found_cc NAMES cc gcc clang)
find_program(found_protoc NAMES protoc-c)
if(NOT missing EQUAL 0 OR NOT found_cc OR NOT found_protoc OR NOT EXISTS "${need}/duckdb/libduckdb.so" OR NOT EXISTS "${need}/nanoarrow")
  message(STATUS "brant: deps/fetch.sh build (into ${need})")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "BRANT_DEPS_DIR=${need}" "${CMAKE_CURRENT_SOURCE_DIR}/deps/fetch.sh" build
                  RESULT_VARIABLE failed)
  if(NOT failed EQUAL 0)
    message(
      FATAL_ERROR
        "brant's dependencies are missing and deps/fetch.sh could not bring them (its last words are above). On Debian 12 run "
        "`sudo deps/fetch.sh build` once, then pip again; elsewhere see deps/README.md: install the libraries it lists, and set "
        "BRANT_DEPS_DIR to a folder that has duckdb/ and nanoarrow/.")
  endif()
endif()
