// SPDX-License-Identifier: Apache-2.0
// This file includes itself once a target of Highway's dispatch.
#include "compute/host/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/host/cpu.cc"
// As the loops of programs are compiled.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "absl/strings/str_cat.h"
#include "compute/host/library_product.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::compute {
namespace HWY_NAMESPACE {

const char* FindLevel() {
#if HWY_TARGET == HWY_AVX3
  return "AVX-512";
#elif HWY_TARGET == HWY_AVX2
  return "AVX2";
#elif HWY_ARCH_ARM
  return HWY_TARGET == HWY_NEON ? "NEON" : "SVE";
#else
  return "no AVX2";
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::compute {

HWY_EXPORT(FindLevel);

std::string DescribeCpu(size_t threads) {
  const std::string& problem = LibraryProblem();
  return absl::StrCat(HWY_DYNAMIC_DISPATCH(FindLevel)(), ", ", threads,
                      threads == 1 ? " thread" : " threads", ", products by ",
                      problem.empty() ? "oneDNN" : "ourselves: oneDNN: ", problem);
}

}  // namespace ferry::compute
#endif
