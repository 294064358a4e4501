# SPDX-License-Identifier: Apache-2.0
# Compiles for aarch64 without a system of that kind: Debian's cross-compiler, and of the libraries only this
# machine's headers, which are the same there. Nothing can be linked, so each program and library is an empty file (preset aarch64).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)  # where their CMake files are
# Behind the compiler's own, or its C library would be mixed with this machine's.
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_INIT "-idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu")
  set(CMAKE_${language}_IMPLICIT_INCLUDE_DIRECTORIES /usr/include /usr/include/x86_64-linux-gnu)
endforeach()
foreach(kind LINK_EXECUTABLE CREATE_SHARED_LIBRARY CREATE_SHARED_MODULE)
  set(CMAKE_CXX_${kind} "<CMAKE_COMMAND> -E touch <TARGET>")
  set(CMAKE_C_${kind} "<CMAKE_COMMAND> -E touch <TARGET>")
endforeach()
