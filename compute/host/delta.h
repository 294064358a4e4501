// SPDX-License-Identifier: Apache-2.0
// checksum, delta_encode and delta_apply on memory, in parts that threads take. Results do not
// depend on the number of threads. A run that stops leaves results half done. Pure functions on
// memory that they are given; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/host/run_control.h"
#include "compute/host/workers.h"
#include "compute/program/delta.h"

namespace ferry::compute {

// `workers` null: the caller's thread does all.
struct ByteWork {
  Workers* workers = nullptr;
  RunControl& control;
};

// `out` gets two u64.
void RunChecksum(const std::byte* data, uint64_t bytes, ByteWork work, std::byte* out);

// Where the results of a delta_encode go. Null: it is not wanted.
struct DeltaResults {
  std::byte* bitmap = nullptr;  // never null
  std::byte* values = nullptr;
  std::byte* count = nullptr;
  std::byte* checksum = nullptr;
};
void RunDeltaEncode(const DeltaSizes& sizes, const std::byte* before, const std::byte* after,
                    ByteWork work, const DeltaResults& out);

void RunDeltaApply(const DeltaSizes& sizes, const std::byte* bitmap, const std::byte* values,
                   const std::byte* count, ByteWork work, std::byte* data);

}  // namespace ferry::compute
