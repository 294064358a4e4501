// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_watch.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace ferry::bench {
namespace {

// For a signal handler, which may neither allocate nor lock.
char message[256];
size_t message_bytes = 0;

void OnAlarm(int) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, message_bytes);
  _exit(1);
}

}  // namespace

CaseWatch::CaseWatch(const std::string& name) {
  std::fprintf(stderr, "measuring %s\n", name.c_str());
  const std::string text =
      absl::StrCat("ferry_gpu_bench: ", name, " is not over after ", kMostSeconds, " s\n");
  message_bytes = text.copy(message, sizeof(message));
  signal(SIGALRM, OnAlarm);
  alarm(kMostSeconds);
}

CaseWatch::~CaseWatch() { alarm(0); }

}  // namespace ferry::bench
