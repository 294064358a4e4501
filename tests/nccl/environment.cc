// SPDX-License-Identifier: Apache-2.0
// Before main: what the fake NCCL asks for.
#include <stdlib.h>

namespace {
[[maybe_unused]] const int kSet = setenv("FERRY_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
}  // namespace
