// SPDX-License-Identifier: Apache-2.0
// transfer.nccl.environment: a map in the file, a list of NAME=value in a flag or the environment.
// Pure.
#pragma once

#include <string>

#include "daemon/config/schema.h"

namespace ferry {

void ReadNcclEnvironment(const std::string& path, const YAML::Node& node, const OriginOf& origin,
                         ConfigDraft& draft);
std::string PrintNcclEnvironment(const Config& config);

}  // namespace ferry
