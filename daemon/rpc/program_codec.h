// SPDX-License-Identifier: Apache-2.0
// Programs to and from the wire. What comes back from FromProto has a sound structure
// (CheckStructure); whether it makes sense is Verify's to say. Any thread.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "compute/program/program.h"
#include "ferry/v1/program.pb.h"

namespace ferry {

// Nothing if no value has it.
std::optional<compute::DType> DTypeOf(v1::DataType type);

void ToProto(const compute::Buffer& buffer, v1::ProgramBuffer* out);
void ToProto(const compute::Program& program, v1::Program* out);
// INVALID_ARGUMENT, naming the node and field, for what is none.
absl::StatusOr<compute::Program> FromProto(const v1::Program& proto);

}  // namespace ferry
