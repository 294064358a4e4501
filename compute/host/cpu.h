// SPDX-License-Identifier: Apache-2.0
// How programs run on this CPU, in words, for `ferryctl status`. Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace ferry::compute {

// "AVX2, 2 threads, products by oneDNN"; if they are not by oneDNN, why.
std::string DescribeCpu(size_t threads);

}  // namespace ferry::compute
