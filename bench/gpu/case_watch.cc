// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_watch.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace ferry::bench {
namespace {

// Daemons and clients: left alone they would keep their GPUs.
void KillChildren() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string stat(std::istreambuf_iterator<char>(file), {});
    // After the command's name, which may hold anything: its state and its parent.
    const std::vector<std::string> fields =
        absl::StrSplit(stat.substr(stat.rfind(')') + 1), ' ', absl::SkipEmpty());
    pid_t parent = 0;
    if (fields.size() > 1 && absl::SimpleAtoi(fields[1], &parent) && parent == getpid()) {
      kill(pid, SIGKILL);
    }
  }
}

}  // namespace

CaseWatch::CaseWatch(const std::string& name) : name_(name) {
  std::fprintf(stderr, "measuring %s\n", name.c_str());
  thread_ = std::thread([this] { Watch(); });
}

CaseWatch::~CaseWatch() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CaseWatch::Watch() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kMost, [this] { return over_; })) return;
  std::fprintf(stderr, "ferry_gpu_bench: %s is not over after %d s\n", name_.c_str(),
               static_cast<int>(kMost.count()));
  KillChildren();
  _exit(1);
}

}  // namespace ferry::bench
