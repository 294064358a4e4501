# SPDX-License-Identifier: Apache-2.0
# What Ferry takes from the distribution; docs/dependencies.md says why each one.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED CONFIG)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_path(UCX_INCLUDE_DIR ucp/api/ucp.h REQUIRED)
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)
find_path(PROTOZERO_INCLUDE_DIR protozero/pbf_reader.hpp REQUIRED)
find_path(JSON_INCLUDE_DIR nlohmann/json.hpp REQUIRED)
# The toolkit's headers, or what tools/setup unpacked of NVIDIA's wheel; the library is opened at run time.
find_path(CUDA_INCLUDE_DIR cuda.h HINTS /usr/local/cuda/include $ENV{CUDA_PATH}/include
  ${PROJECT_SOURCE_DIR}/.cache/cuda/nvidia/cu13/include REQUIRED)
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDA_INCLUDE_DIR} ${PROJECT_SOURCE_DIR}/.cache/cuda/nvidia/cu13/include
  REQUIRED)
find_program(NVCC nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_PATH}/bin
  ${PROJECT_SOURCE_DIR}/.cache/cuda/nvidia/cu13/bin REQUIRED)
find_library(JEMALLOC_LIBRARY jemalloc REQUIRED)
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()
