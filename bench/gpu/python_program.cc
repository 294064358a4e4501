// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/python_program.h"

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

std::map<std::string, double> RunPython(const char* name, const char* program, int seconds,
                                        const std::vector<std::string>& arguments) {
  tools::SpawnOptions options;
  options.arguments = {"timeout", "-k", "5", absl::StrCat(seconds), "python3", "-c", program};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  const auto output = tools::RunAndRead(options);
  if (!output.ok()) {
    const std::string text(output.status().message());
    const size_t last = text.find_last_of('\n', text.size() < 2 ? 0 : text.size() - 2);
    std::fprintf(stderr, "not measured: %s: %s\n", name,
                 text.substr(last == std::string::npos ? 0 : last + 1).c_str());
    return {};
  }
  std::map<std::string, double> numbers;
  for (absl::string_view line : absl::StrSplit(*output, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    double value = 0;
    if (words.size() == 2 && absl::SimpleAtod(words[1], &value)) numbers[words[0]] = value;
  }
  return numbers;
}

}  // namespace ferry::bench
