// SPDX-License-Identifier: Apache-2.0
// Names what a program does. Pure function.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "compute/program/program.h"

namespace ferry::compute {

using Fingerprint = std::array<uint8_t, 32>;

// Equal for programs that differ only in names of values, in labels, in ops that nothing needs, or
// in an order of the text that means nothing. Different, but for collisions of SHA-256, for
// programs that differ in anything else, such as the order of operands or the names of buffers. The
// same in every process and build. CheckStructure must accept the program.
Fingerprint FingerprintOf(const Program& program);

std::string ToString(const Fingerprint& fingerprint);  // 64 hexadecimal digits

}  // namespace ferry::compute
