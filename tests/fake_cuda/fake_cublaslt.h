// SPDX-License-Identifier: Apache-2.0
// Controls the fake libcublasLt (libferry_fake_cublaslt.so), which multiplies on the fake CUDA's
// streams as a GPU does: products of 16-bit factors 16 terms at a time, of which it cuts off what
// is below the sum's last bits, others term by term. It ends the process for what the real one
// would read or write wrongly. Any thread. All settings can also be given from outside, in
// FERRY_FAKE_CUBLASLT when the library is first used, as "version=130100;no_choice=1":
//
//   version=N        what cublasLtGetVersion answers (default 130100)
//   cuda=N           of which CUDA it is (default 13000)
//   no_choice=1      it has no way to multiply
//   no_type=N        nor one whose result is of this cudaDataType; -1: of none (the default)
//   no_blocks=1      nor one of blocks with scales, as on GPUs before Blackwell
//   drop_alpha=1     products of blocks with scales are multiplied with 1, whatever alpha is
//   ignore_scales=1  the scales of blocks are taken for 1
//   plain_scales=1   scales are taken as if they were not swizzled
//   fail_create=1    no handle can be made
//   fail_queue=N     the Nth product from now is refused
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes the settings named in `settings`; the others stay.
void fake_cublaslt_configure(const char* settings);

// Counts since the process began, or of now where it says so.
struct fake_cublaslt_counts {
  uint64_t handles;   // now
  uint64_t objects;   // descriptions, layouts and preferences, now
  uint64_t asked;     // how often it was asked how to multiply
  uint64_t products;  // that were queued
};
void fake_cublaslt_get_counts(struct fake_cublaslt_counts* counts);

#ifdef __cplusplus
}
#endif
