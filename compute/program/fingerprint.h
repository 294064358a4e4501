// SPDX-License-Identifier: Apache-2.0
// The name of what a program does. Pure function.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "compute/program/program.h"

namespace ferry::compute {

using Fingerprint = std::array<uint8_t, 32>;

// Equal for programs that differ in the names of values, in labels, in ops that nothing needs, or
// in an order of the text that means nothing; different, but for SHA-256's collisions, if they
// differ in anything else, such as the order of operands or the names of buffers. The same in every
// process and every build. CheckStructure accepts the program.
Fingerprint FingerprintOf(const Program& program);

std::string ToString(const Fingerprint& fingerprint);  // 64 hexadecimal digits

}  // namespace ferry::compute
