// SPDX-License-Identifier: Apache-2.0
// Turns programs into their proto and back. A program from FromProto has a sound structure
// (CheckStructure); whether it makes sense, Verify must say. Any thread.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "compute/program/program.h"
#include "ferry/v1/program.pb.h"

namespace ferry {

// Nothing if no DType corresponds to `type`.
std::optional<compute::DType> DTypeOf(v1::DataType type);

void ToProto(const compute::Buffer& buffer, v1::ProgramBuffer* out);
void ToProto(const compute::Program& program, v1::Program* out);
// INVALID_ARGUMENT with the node and field that are wrong, if the structure is not sound.
absl::StatusOr<compute::Program> FromProto(const v1::Program& proto);

}  // namespace ferry
