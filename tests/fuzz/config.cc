// SPDX-License-Identifier: Apache-2.0
// A configuration: the first step is its file, the others are flags, "path=value". What is accepted
// is printed, and read back to the same.
#include "daemon/config/config.h"

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/fd.h"
#include "tests/fuzz/steps.h"

namespace ferry::testing {
namespace {

absl::StatusOr<Config> Load(const std::string& text,
                            std::vector<ConfigSources::Override> overrides) {
  const UniqueFd file(memfd_create("config", MFD_CLOEXEC));
  FERRY_CHECK(write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ConfigSources sources;
  sources.file = absl::StrCat("/proc/self/fd/", file.get());
  sources.overrides = std::move(overrides);
  sources.hostname = "node-a";
  return LoadConfig(sources);
}

}  // namespace
}  // namespace ferry::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  using namespace ferry::testing;
  std::string file;
  std::vector<ConfigSources::Override> flags;
  for (const Step& step : StepsOf(data, size)) {
    const std::string text = step.verb + step.body;
    if (file.empty()) {
      file = text;
      continue;
    }
    const std::pair<std::string, std::string> flag = absl::StrSplit(text, absl::MaxSplits('=', 1));
    flags.push_back({flag.first, flag.second, "--flag"});
  }
  const absl::StatusOr<Config> config = Load(file, flags);
  if (!config.ok()) {
    FERRY_CHECK(!config.status().message().empty());
    return 0;
  }
  const std::string printed = PrintConfig(*config);
  const absl::StatusOr<Config> again = Load(printed, {});
  FERRY_CHECK(again.ok());
  FERRY_CHECK(PrintConfig(*again) == printed);
  return 0;
}
