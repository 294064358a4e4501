// SPDX-License-Identifier: Apache-2.0
// Measurements by a Python program of a process of its own, which runs to its end. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ferry::bench {

// What the program prints as lines of a label and a number. Empty if it fails, or takes longer than
// `seconds`: stderr says that `name` is not measured, and the last line of what the program said.
std::map<std::string, double> RunPython(const char* name, const char* program, int seconds,
                                        const std::vector<std::string>& arguments = {});

}  // namespace ferry::bench
