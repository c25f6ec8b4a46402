# SPDX-License-Identifier: Apache-2.0
# What goes into the wheel beside the Python files, all in the package's folder: the binding, libbrant, its programs, DuckDB's library and
# the small system libraries that these link. Everything finds everything by $ORIGIN: as DT_RPATH, which also holds for what the
# libraries link themselves. pip runs this through scikit-build-core (pyproject.toml); scripts/wheel-check tries the result.
set(programs brant brant-worker brant-executor)
set_target_properties(libbrant PROPERTIES VERSION 0 SOVERSION 0) # one file: a wheel has no links
foreach(t libbrant brant_native ${programs})
  set_target_properties(${t} PROPERTIES INSTALL_RPATH "$ORIGIN")
  target_link_options(${t} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS libbrant brant_native LIBRARY DESTINATION brant NAMELINK_SKIP)
install(TARGETS ${programs} RUNTIME DESTINATION brant)
install(PROGRAMS ${DUCKDB_ROOT}/libduckdb.so DESTINATION brant)
install(FILES ${CMAKE_SOURCE_DIR}/include/brant.h DESTINATION brant/include)
install(PROGRAMS ${CMAKE_SOURCE_DIR}/python/brant-script.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME brant)
if(EXISTS ${DUCKDB_ROOT}/LICENSE)
  install(FILES ${DUCKDB_ROOT}/LICENSE DESTINATION brant/licenses RENAME duckdb)
endif()
foreach(p libnghttp2-14 libuv1 libprotobuf-c1 libjansson4 liblz4-1 libzstd1 libxxhash0 libedit2 libtinfo6 libbsd0 libmd0)
  if(EXISTS /usr/share/doc/${p}/copyright)
    install(FILES /usr/share/doc/${p}/copyright DESTINATION brant/licenses RENAME ${p})
  endif()
endforeach()
# libc and the loader are the user's: the wheel asks for the glibc of the machine that built it, or a newer one.
foreach(t ${programs})
  list(APPEND files $<TARGET_FILE:${t}>)
endforeach()
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES ${files}
    LIBRARIES $<TARGET_FILE:libbrant>
    PRE_EXCLUDE_REGEXES [[^ld-linux]] [[^lib(c|m|dl|rt|pthread|gcc_s|stdc[+][+])[.]so]] [[^libduckdb]] [[^libbrant]]
    RESOLVED_DEPENDENCIES_VAR found
    UNRESOLVED_DEPENDENCIES_VAR lost
    CONFLICTING_DEPENDENCIES_PREFIX clash)
  if(lost)
    message(FATAL_ERROR \"libraries that the programs link are not found: \${lost}\")
  endif()
  foreach(f IN LISTS found)
    get_filename_component(name \"\${f}\" NAME)
    get_filename_component(real \"\${f}\" REALPATH)
    file(INSTALL \"\${real}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/brant\" RENAME \"\${name}\")
  endforeach()")
