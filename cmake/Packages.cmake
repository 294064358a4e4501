# SPDX-License-Identifier: Apache-2.0
# Debian packages, by tools/packages: what cmake --install has, by component, and what deploy/debian/stage puts beside it.
# The linker's build-id is of the build's own path to libraries, too, though another one is installed: no folder may be in it.
set_target_properties(ferryd ferryctl PROPERTIES BUILD_RPATH_USE_ORIGIN ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ferry)
set(CPACK_PACKAGE_VENDOR "Ferry")
set(CPACK_PACKAGE_CONTACT "Ferry developers <ferry@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL daemon tools client client_dev)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE none)  # cmake/rebuild.cmake compresses
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/stage.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/rebuild.cmake)
set(CPACK_FERRY_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_FERRY_BUILD ${CMAKE_BINARY_DIR})
# Not found out by dpkg-shlibdeps, for which the private libraries would need packages: deploy/debian/stage checks that these are
# all that the files need.
set(FERRY_DEPENDS "libc6 (>= 2.36), libstdc++6 (>= 12)")

# ferry_package(COMPONENT NAME DEPENDS SECTION SUMMARY DESCRIPTION)
function(ferry_package component name depends section summary description)
  string(TOUPPER ${component} upper)
  foreach(setting "PACKAGE_NAME;${name}" "PACKAGE_DEPENDS;${depends}" "PACKAGE_SECTION;${section}")
    list(GET setting 0 key)
    list(GET setting 1 value)
    set(CPACK_DEBIAN_${upper}_${key} ${value} PARENT_SCOPE)
  endforeach()
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
endfunction()
ferry_package(daemon ferryd "ferryctl (= ${PROJECT_VERSION}), ${FERRY_DEPENDS}" net
  "transfer daemon of a node"
  "ferryd owns a node's devices, host memory and GPUs, and moves buffers between\nthose of different hosts for its clients. This package has the daemon, its\nunits for systemd and the libraries it was built with.")
ferry_package(tools ferryctl "${FERRY_DEPENDS}" net
  "command line of Ferry"
  "ferryctl shows what a ferryd does, says what is wrong with a node, drains it,\nand moves files from one node to another through it. This package has the\nlibraries it was built with, which ferryd needs too.")
ferry_package(client libferry0 "libc6 (>= 2.34)" libs
  "client library of Ferry"
  "libferry shares memory with the node's ferryd and posts sends and receives by\nkey. It needs the C library and nothing else.")
ferry_package(client_dev libferry-dev "libferry0 (= ${PROJECT_VERSION})" libdevel
  "client library of Ferry, headers"
  "libferry shares memory with the node's ferryd and posts sends and receives by\nkey. This package has its headers for C and C++, and files for pkg-config and\nCMake to build with it.")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/debian/ferryd/conffiles
  ${PROJECT_SOURCE_DIR}/deploy/debian/ferryd/postinst ${PROJECT_SOURCE_DIR}/deploy/debian/ferryd/prerm
  ${PROJECT_SOURCE_DIR}/deploy/debian/ferryd/postrm)
# What packages that are linked to it depend on: of 0.x only libraries of one minor version are the same (docs/versions.md).
math(EXPR next_minor "${PROJECT_VERSION_MINOR} + 1")
file(WRITE ${CMAKE_BINARY_DIR}/packages-control/shlibs "libferry ${PROJECT_VERSION_MAJOR} \
libferry0 (>= ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}), libferry0 (<< ${PROJECT_VERSION_MAJOR}.${next_minor}~)\n")
set(CPACK_DEBIAN_CLIENT_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/debian/libferry0/triggers
  ${CMAKE_BINARY_DIR}/packages-control/shlibs)
include(CPack)
