# SPDX-License-Identifier: Apache-2.0
# The only ways targets are made here: a folder's library, its program, its tests.
set(FERRY_SANITIZE "" CACHE STRING "Sanitizers for every target of ours: 'address,undefined' or 'thread'")
option(FERRY_UNITY "Compile several files of a folder as one: half the time for all, more for one" OFF)
option(FERRY_FUZZ "Fuzz targets driven by libFuzzer (clang), not only replayed: preset fuzz" OFF)

add_library(ferry_flags INTERFACE)
target_include_directories(ferry_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(ferry_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
target_compile_definitions(ferry_flags INTERFACE FERRY_VERSION="${PROJECT_VERSION}")
if(FERRY_SANITIZE)
  target_compile_options(ferry_flags INTERFACE -fsanitize=${FERRY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>  # false alarms of g++ 12 on absl::InlinedVector
    $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)  # fences: ours order against other processes, which no sanitizer sees
  target_link_options(ferry_flags INTERFACE -fsanitize=${FERRY_SANITIZE})
endif()
if(FERRY_FUZZ)
  target_compile_options(ferry_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# ferry_unity(NAME): the target's files may be compiled together. The presets without FERRY_UNITY compile each alone,
# so each still includes what it uses.
function(ferry_unity name)
  if(FERRY_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)  # a .cc is no header
  endif()
endfunction()

# ferry_library(NAME [EXCLUDE regex] DEPS ...): every .cc of the folder (not of its sub-folders) is in it.
function(ferry_library name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCLUDE})
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC ferry_flags ${ARG_DEPS})
  else()  # headers only
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ferry_flags ${ARG_DEPS})
  endif()
endfunction()

# ferry_tests(NAME LABEL label [TIMEOUT seconds] DEPS ...): every *_test.cc of the folder, one binary,
# one ctest entry per test case so that a failure names itself.
function(ferry_tests name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    message(WARNING "${CMAKE_CURRENT_SOURCE_DIR} has no tests yet")
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ferry_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  ferry_unity(${name})
  if(ARG_LABEL STREQUAL "unit")
    target_compile_options(${name} PRIVATE -O0)  # matchers take the optimizer half of the whole build
  elseif(NOT ARG_LABEL STREQUAL "sim")
    target_compile_options(${name} PRIVATE -O1)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(FERRY_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# ferry_relocatable(NAME RPATH): what is installed finds its libraries under RPATH of itself, and so do those
# libraries theirs (which only the old kind of tag does): an installed tree may be moved, and carried elsewhere.
function(ferry_relocatable name rpath)
  # The second is where packages have libraries that are nobody else's (deploy/debian/stage).
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/${rpath};$ORIGIN/${rpath}/ferry")
  # Bound at the start: nothing that decides where calls go stays writable.
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags -Wl,-z,now)
endfunction()
