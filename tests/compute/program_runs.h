// SPDX-License-Identifier: Apache-2.0
// What runs of random programs start with, and what they are compared by: random memory, and stores
// of every value. Pure functions.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "compute/program/program.h"
#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {

inline Bytes RandomBytes(uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline std::vector<Bytes> RandomBuffers(const Program& program, uint64_t seed) {
  std::vector<Bytes> buffers;
  for (const Buffer& buffer : program.buffers) {
    buffers.push_back(RandomBytes(buffer.bytes, seed * 1000 + buffers.size()));
  }
  return buffers;
}

// Stores values that are not within a body into a buffer of their own each, as long as there may be
// more buffers: those for which `wanted` is true.
inline void Store(Program& program, absl::FunctionRef<bool(ValueId)> wanted) {
  const size_t ops = program.nodes.size();
  for (size_t i = 0; i < ops; i += 1 + program.nodes[i].body) {
    for (uint32_t j = 0; j < program.nodes[i].results; ++j) {
      const ValueId value = program.Result(static_cast<OpIndex>(i), j);
      if (!wanted(value)) continue;
      if (program.buffers.size() == kMaxBuffers) return;
      Node store;
      store.op = Op::kStore;
      store.operands = {value};
      store.buffers = {static_cast<uint32_t>(program.buffers.size())};
      program.buffers.push_back(
          {absl::StrCat("all", i, ".", j), Access::kWrite, *BytesOf(program.types[value])});
      program.Append(std::move(store), {});
    }
  }
}

// Stores every value, so that each is compared; little is fused then.
inline void StoreAll(Program& program) {
  Store(program, [](ValueId) { return true; });
}

// Stores what no op takes, so that what is between is fused as it is in programs of people.
inline void StoreLeaves(Program& program) {
  std::vector<bool> taken(program.types.size());
  for (const Node& node : program.nodes) {
    for (const ValueId operand : node.operands) taken[operand] = true;
    for (const ValueId value : node.yielded) taken[value] = true;
  }
  Store(program, [&](ValueId value) { return !taken[value]; });
}

}  // namespace ferry::compute::testing
