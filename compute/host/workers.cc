// SPDX-License-Identifier: Apache-2.0
#include "compute/host/workers.h"

namespace ferry::compute {

Workers::Workers(size_t threads) {
  for (size_t i = 1; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Workers::~Workers() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::RunPart(Job& job) {
  const size_t part = job.begun++;
  if (job.begun == job.parts) jobs_.remove(&job);
  mutex_.Unlock();
  job.part(part);
  mutex_.Lock();
  if (++job.over == job.parts) changed_.notify_all();
}

void Workers::Run(size_t parts, absl::FunctionRef<void(size_t)> part) {
  if (parts <= 1 || threads_.empty()) {
    for (size_t i = 0; i < parts; ++i) part(i);
    return;
  }
  Job job{part, parts};
  MutexLock lock(mutex_);
  jobs_.push_back(&job);
  changed_.notify_all();
  while (job.begun < job.parts) RunPart(job);
  while (job.over < job.parts) changed_.wait(mutex_);
}

void Workers::Work() {
  MutexLock lock(mutex_);
  while (!stopped_) {
    if (jobs_.empty()) {
      changed_.wait(mutex_);
    } else {
      RunPart(*jobs_.front());
    }
  }
}

}  // namespace ferry::compute
