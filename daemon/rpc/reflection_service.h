// SPDX-License-Identifier: Apache-2.0
// grpc.reflection.v1.ServerReflection over the generated descriptors. Not the library's own, which
// in this version is v1alpha, and adds itself to every server of a process that links it: the peer
// port has none. Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace ferry {

// Lists `services` (full names) and itself.
std::unique_ptr<grpc::Service> MakeReflectionService(std::vector<std::string> services);

}  // namespace ferry
