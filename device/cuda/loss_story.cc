// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/loss_story.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace ferry {
namespace {

struct Stories {
  Mutex mutex;
  std::vector<const LossStory*> all ABSL_GUARDED_BY(mutex);
};

// Never destroyed: GPUs may be lost while the process exits.
Stories& Get() {
  static Stories& stories = *new Stories();
  return stories;
}

}  // namespace

LossStory::LossStory(std::function<std::string()> tell) : tell_(std::move(tell)) {
  MutexLock lock(Get().mutex);
  Get().all.push_back(this);
}

LossStory::~LossStory() {
  MutexLock lock(Get().mutex);
  std::erase(Get().all, this);
}

std::string LossStory::All() {
  MutexLock lock(Get().mutex);
  std::string text;
  for (const LossStory* story : Get().all) {
    if (const std::string told = story->tell_(); !told.empty()) absl::StrAppend(&text, "; ", told);
  }
  return text;
}

}  // namespace ferry
