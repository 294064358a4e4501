// SPDX-License-Identifier: Apache-2.0
// The setting transfer.nccl.environment. In the file it is a map; in a flag or a variable, a list
// of NAME=value. Pure.
#pragma once

#include <string>

#include "daemon/config/schema.h"

namespace ferry {

void ReadNcclEnvironment(const std::string& path, const YAML::Node& node, const OriginOf& origin,
                         ConfigDraft& draft);
std::string PrintNcclEnvironment(const Config& config);

}  // namespace ferry
