// SPDX-License-Identifier: Apache-2.0
// A program whose one kernel stores a tensor that is in memory before and after a broadcast of it:
// once for each of the rows that the broadcast makes.
#pragma once

namespace ferry::compute::testing {

inline constexpr char kStoredBroadcast[] =
    "program 1\n"
    "buffer @x read 16\n"
    "buffer @a write 16\n"
    "buffer @b write 48\n"
    "buffer @c write 16\n"
    "%x = input @x : u64[2]\n"
    "%s = checksum %x\n"
    "%r = reshape %s : u64[2,1]\n"
    "%w = broadcast_in_dim %r dimensions=[1,2] : u64[1,2,3]\n"
    "store @a, %r\n"
    "store @b, %w\n"
    "store @c, %r\n";

}  // namespace ferry::compute::testing
