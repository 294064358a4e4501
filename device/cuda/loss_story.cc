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

thread_local int gpu_of_this_thread = -1;

// Never destroyed: GPUs may be lost while the process exits.
Stories& Get() {
  static Stories& stories = *new Stories();
  return stories;
}

}  // namespace

LossStory::LossStory(Tell tell) : tell_(std::move(tell)) {
  MutexLock lock(Get().mutex);
  Get().all.push_back(this);
}

LossStory::~LossStory() {
  MutexLock lock(Get().mutex);
  std::erase(Get().all, this);
}

std::string LossStory::All(const Loss& loss) {
  MutexLock lock(Get().mutex);
  std::string text;
  for (const LossStory* story : Get().all) {
    if (const std::string told = story->tell_(loss); !told.empty())
      absl::StrAppend(&text, "; ", told);
  }
  return text;
}

void LossStory::AtGpu(int ordinal) { gpu_of_this_thread = ordinal; }

int LossStory::gpu_of_thread() { return gpu_of_this_thread; }

}  // namespace ferry
