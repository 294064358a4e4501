// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/bar_at_loss.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "compute/cuda/gpu_arch.h"

namespace ferry {

std::string BarAtLoss::Tell(const LossStory::Loss& loss) {
  // Several threads may find the loss. One that comes second waits for the first one's story.
  if (told_.exchange(true)) return "";
  std::vector<GpuAtWork> at_work;
  for (const auto& [device, computer] : computers_) {
    const std::optional<GpuComputer::AtWork> run = computer->at_work();
    if (!run) continue;
    const GpuInfo& gpu = computer->device().info();
    BarredProgram running;
    running.fingerprint = run->fingerprint;
    running.device = device;
    running.gpu = gpu.uuid_text();
    running.target = std::string(compute::GpuArchOf(gpu.major, gpu.minor)->name);
    running.uid = run->uid;
    running.job = run->job;
    at_work.push_back({gpu.ordinal, std::move(running)});
  }
  std::vector<BarredProgram> culprits = CulpritsOf(loss, at_work, absl::Now());
  if (culprits.empty()) return "";
  std::string text = absl::StrCat(
      "from now on GPUs do not run ",
      absl::StrJoin(culprits, ", ", [](std::string* out, const BarredProgram& culprit) {
        out->append(absl::BytesToHexString(culprit.fingerprint.substr(0, 8)));
      }));
  if (const absl::Status kept = barred_.Bar(std::move(culprits)); !kept.ok()) {
    absl::StrAppend(&text, ", which the next daemon does not know: ", kept.message());
  }
  return text;
}

}  // namespace ferry
