// SPDX-License-Identifier: Apache-2.0
// Rows of the table of settings that are of no common kind, and what can be wrong with a text (""
// if nothing is). Home: as daemon/config/schema.h.
#pragma once

#include <string>

#include "daemon/config/schema.h"

namespace ferry {

std::string ListenProblem(const std::string& text);   // host:port, the host an IP address
std::string NameProblem(const std::string& text);     // of a node
std::string LibraryProblem(const std::string& text);  // a name or a path
std::string PathProblem(const std::string& text);     // absolute
std::string UserProblem(const std::string& text);  // a user's name or number; empty: none is named
std::string GroupProblem(const std::string& text);
std::string ModeProblem(const std::string& text);  // "0660"

// Of a node all but its name, on one line.
std::string PrintRest(const Config::Node& node);

ConfigField GpusField(std::string path, std::string meaning);
ConfigField NodesField(std::string path, std::string meaning);
ConfigField UidsField(std::string path, std::string meaning);
ConfigField RoutesField(std::string path, std::string meaning);
ConfigField NcclEnvironmentField(std::string path, std::string meaning);
// A setting that the format has a place for and this version does not serve: never taken silently.
ConfigField UnsupportedField(std::string path);

}  // namespace ferry
