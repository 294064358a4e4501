// SPDX-License-Identifier: Apache-2.0
// grpc.reflection.v1.ServerReflection over the generated descriptors. The library of this version
// serves v1alpha only, which newer tools no longer ask for; both are served. Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace ferry {

// Lists `services` (full names) and itself.
std::unique_ptr<grpc::Service> MakeReflectionService(std::vector<std::string> services);

}  // namespace ferry
