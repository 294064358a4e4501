# SPDX-License-Identifier: Apache-2.0
# Run at each build (cmake -P) with SOURCE and OUTPUT: writes which commit the programs are made of. The file stays as
# it is while that is the same, so that nothing is linked again. Without git, or in a tarball, there is none.
set(commit "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${SOURCE} real)
  if(top STREQUAL real)  # not of a repository that merely is around it
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${GIT} -C ${SOURCE} diff-index --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
    if(commit AND changed)
      string(APPEND commit ", changed")
    endif()
  endif()
endif()
set(text "// Made by cmake/commit.cmake.\nnamespace ferry {\nextern const char kCommit[];\nconst char kCommit[] = \"${commit}\";\n}\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
