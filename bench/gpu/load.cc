// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/load.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {
namespace {

// Two batches of products are always queued; a line for each that is over.
constexpr char kProgram[] = R"py(
import sys, threading, time
import torch
def work(gpu):
    n, count = 8192, 25
    with torch.cuda.device(gpu):
        a, b = (torch.randn(n, n, device='cuda', dtype=torch.bfloat16) for _ in range(2))
        c = torch.empty_like(a)
        queued = []
        begin = time.monotonic_ns()
        while True:
            for _ in range(count):
                torch.mm(a, b, out=c)
            queued.append(torch.cuda.Event())
            queued[-1].record()
            if len(queued) < 3:
                continue
            queued.pop(0).synchronize()
            end = time.monotonic_ns()
            sys.stdout.write('%d %d %f\n' % (begin, end, count * 2 * n**3 / (end - begin) / 1e3))
            sys.stdout.flush()
            begin = end
for gpu in range(int(sys.argv[1])):
    threading.Thread(target=work, args=(gpu,)).start()
)py";

// So many of each GPU, for one figure.
constexpr size_t kSamples = 12;
// Before that, for clocks and queues.
constexpr size_t kWarmUp = 8;
// For PyTorch to start, and for a batch of products, which takes a tenth of a second.
constexpr std::chrono::seconds kMostQuiet{60};

absl::Status NoProducts() {
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kInternal,
               "the process that loads the GPUs says nothing for 60 s");
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuLoad>> GpuLoad::Start(int gpus) {
  std::unique_ptr<GpuLoad> load(new GpuLoad);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, "no pipe");
  }
  load->output_ = UniqueFd(ends[0]);
  UniqueFd write_end(ends[1]);
  tools::SpawnOptions options;
  options.arguments = {"python3", "-c", kProgram, absl::StrCat(gpus)};
  options.output = write_end.get();
  ASSIGN_OR_RETURN(tools::ChildProcess process, tools::ChildProcess::Spawn(options));
  write_end.Reset();
  load->process_ = std::make_unique<tools::ChildProcess>(std::move(process));
  load->reader_ = std::thread([load = load.get()] { load->Read(); });
  std::unique_lock lock(load->mutex_);
  const bool warm = load->changed_.wait_for(lock, kMostQuiet, [&] {
    return load->ended_ || load->samples_.size() >= static_cast<size_t>(gpus) * kWarmUp;
  });
  const bool ended = load->ended_;
  lock.unlock();  // the reader ends before `load` does
  if (!warm) return NoProducts();
  if (!ended) return load;
  return Error(absl::StatusCode::kUnavailable, Reason::kInternal,
               "there is no python3 with torch and CUDA to load the GPUs with");
}

GpuLoad::~GpuLoad() {
  process_.reset();  // its end of the pipe goes with it
  if (reader_.joinable()) reader_.join();
}

void GpuLoad::Read() {
  std::string text;
  char buffer[4096];
  ssize_t got;
  while ((got = read(output_.get(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      const std::vector<std::string> words = absl::StrSplit(text.substr(0, end), ' ');
      Sample sample{};
      if (words.size() != 3 || !absl::SimpleAtoi(words[0], &sample.begin) ||
          !absl::SimpleAtoi(words[1], &sample.end) ||
          !absl::SimpleAtod(words[2], &sample.teraflops)) {
        continue;  // a warning of Python's
      }
      std::lock_guard lock(mutex_);
      samples_.push_back(sample);
      changed_.notify_all();
    }
  }
  std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

size_t GpuLoad::SamplesIn(int64_t begin, double* sum) {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  *sum = 0;
  for (const Sample& sample : samples_) {
    if (sample.begin < begin) continue;
    *sum += sample.teraflops;
    ++count;
  }
  return count;
}

absl::StatusOr<double> GpuLoad::RateWhile(const std::function<absl::Status()>& act) {
  const int64_t begin = tools::MonotonicNanoseconds();
  while (true) {
    if (act != nullptr) RETURN_IF_ERROR(act());
    double sum = 0;
    const size_t count = SamplesIn(begin, &sum);
    if (count >= 2 * kSamples) return sum / static_cast<double>(count);
    std::unique_lock lock(mutex_);
    const auto another = [&, before = samples_.size()] {
      return ended_ || samples_.size() > before;
    };
    if (act == nullptr && !changed_.wait_for(lock, kMostQuiet, another)) return NoProducts();
    if (ended_) {
      return Error(absl::StatusCode::kUnavailable, Reason::kInternal,
                   "the process that loads the GPUs has ended");
    }
  }
}

}  // namespace ferry::bench
