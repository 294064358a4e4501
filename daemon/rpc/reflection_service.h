// SPDX-License-Identifier: Apache-2.0
// grpc.reflection.v1.ServerReflection, and the same as v1alpha, over the generated descriptors.
// gRPC's own is not used because it adds itself to every server of a process that links it, and the
// peer port must have none. Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace ferry {

// One service for each of the two versions. Both list `services` (full names) and themselves.
std::vector<std::unique_ptr<grpc::Service>> MakeReflectionServices(
    const std::vector<std::string>& services);

}  // namespace ferry
