// SPDX-License-Identifier: Apache-2.0
// Rows of the table of settings whose kind is used once. And checks of texts: each returns what is
// wrong with the text, or "" if nothing is. Home: as daemon/config/schema.h.
#pragma once

#include <string>

#include "daemon/config/schema.h"

namespace ferry {

std::string ListenProblem(const std::string& text);   // host:port; the host is an IP address
std::string NameProblem(const std::string& text);     // the name of a node
std::string LibraryProblem(const std::string& text);  // a library's name or path
std::string PathProblem(const std::string& text);     // an absolute path
// A user's name or number; empty: no user is named
std::string UserProblem(const std::string& text);
std::string GroupProblem(const std::string& text);
std::string ModeProblem(const std::string& text);  // a mode such as "0660"

// All of a node's entry except its name, on one line.
std::string PrintRest(const Config::Node& node);

ConfigField GpusField(std::string path, std::string meaning);
ConfigField NodesField(std::string path, std::string meaning);
ConfigField UidsField(std::string path, std::string meaning);
ConfigField RoutesField(std::string path, std::string meaning);
ConfigField NcclEnvironmentField(std::string path, std::string meaning);
// A setting that the format has a place for, but that this version does not support: to set it is a
// problem, never silently ignored.
ConfigField UnsupportedField(std::string path);

}  // namespace ferry
