// SPDX-License-Identifier: Apache-2.0
// What programs are run with on this CPU, in words, for `ferryctl status`. Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace ferry::compute {

// "AVX2, 2 threads, products by oneDNN", or why those are our own.
std::string DescribeCpu(size_t threads);

}  // namespace ferry::compute
