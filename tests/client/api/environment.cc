// SPDX-License-Identifier: Apache-2.0
// Before main: the library opens the fake where it would open the driver.
#include <stdlib.h>

namespace {
[[maybe_unused]] const int kSet = setenv("FERRY_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 0);
}  // namespace
