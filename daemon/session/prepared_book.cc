// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/prepared_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ferry {

uint32_t PreparedBook::Add(TimelinePages& timelines, TransferId first, PostBatch& batch) {
  home_.Check();
  uint32_t number = 0;
  for (const auto& [taken, record] : batches_) {
    if (taken != number) break;
    ++number;
  }
  const auto count = static_cast<uint32_t>(batch.specs.size());
  PreparedRecord& record = batches_[number];
  record.batch = timelines.Prepare(number, count);
  record.first = first;
  record.left = count;
  record.of_jobs = batch.runs_programs;
  record.side = batch.side;
  record.extents = std::move(batch.extents);
  record.record_bytes = record.extents.size() * sizeof(Range);
  return number;
}

PreparedRecord* PreparedBook::Find(uint32_t number) {
  home_.Check();
  const auto entry = batches_.find(number);
  return entry == batches_.end() ? nullptr : &entry->second;
}

const PreparedRecord* PreparedBook::Find(uint32_t number) const {
  home_.Check();
  const auto entry = batches_.find(number);
  return entry == batches_.end() ? nullptr : &entry->second;
}

void PreparedBook::OnEnded(uint32_t number) {
  home_.Check();
  PreparedRecord& record = batches_.find(number)->second;
  if (--record.left == 0) record.batch->End();
}

PreparedBook::Released PreparedBook::TakeReleased() {
  home_.Check();
  Released released;
  for (auto entry = batches_.begin(); entry != batches_.end();) {
    const PreparedRecord& record = entry->second;
    if (record.left > 0 || record.joined || !record.released.has_value()) {
      ++entry;
      continue;
    }
    released.askers.push_back(*record.released);
    released.record_bytes += record.record_bytes;
    past_firings_ += record.batch->firings();
    entry = batches_.erase(entry);
  }
  return released;
}

bool PreparedBook::full() const {
  home_.Check();
  return batches_.size() == FERRY_PREPARED_BATCHES;
}

size_t PreparedBook::armed() const {
  home_.Check();
  return static_cast<size_t>(std::count_if(batches_.begin(), batches_.end(), [](const auto& entry) {
    return entry.second.left > 0 && entry.second.batch->armed();
  }));
}

uint64_t PreparedBook::firings() const {
  home_.Check();
  uint64_t firings = past_firings_;
  for (const auto& [number, record] : batches_) firings += record.batch->firings();
  return firings;
}

void PreparedBook::ListIdle(std::vector<TransferId>& batches) const {
  home_.Check();
  for (const auto& [number, record] : batches_) {
    if (record.left == 0 || record.joined || record.batch->Firing()) continue;
    std::vector<TransferId> idle;
    bool sending = false;
    for (const uint32_t fired : record.fires) {
      const PreparedRecord& joined = batches_.find(fired)->second;
      sending = sending || (joined.side == Side::kSend && joined.batch->Firing());
      // Receives were told before to overwrite what was used.
      idle.push_back(joined.first);
    }
    if (sending) continue;
    batches.insert(batches.end(), idle.begin(), idle.end());
    batches.push_back(record.first);
  }
}

PreparedView PreparedBook::ViewOf(const TransferRow& row) const {
  home_.Check();
  PreparedView view;
  view.waits_for = row.waits_for;
  const PreparedRecord* record = Find(row.batch);
  if (record == nullptr) return view;
  const PreparedBatch& batch = *record->batch;
  view.firings = batch.firings();
  if (!row.fires) return view;
  if (!batch.armed()) {
    view.waits_for = "the rest of its batch, which is not armed yet";
    return view;
  }
  view.fired = batch.Firing();
  view.waits_for = *view.fired
                       ? absl::StrCat(
                             "the other end to fire it, or its bytes: the defined word of this "
                             "end has reached ",
                             view.firings + 1)
                       : absl::StrCat("this end to fire it: its defined word has not reached ",
                                      view.firings + 1);
  return view;
}

}  // namespace ferry
