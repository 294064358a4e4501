// SPDX-License-Identifier: Apache-2.0
// grpc.reflection.v1.ServerReflection, and the same as v1alpha, over the generated descriptors. Not
// the library's own, which adds itself to every server of a process that links it: the peer port
// has none. Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace ferry {

// One for each version; both list `services` (full names) and themselves.
std::vector<std::unique_ptr<grpc::Service>> MakeReflectionServices(
    const std::vector<std::string>& services);

}  // namespace ferry
