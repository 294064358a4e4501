// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/session.h"

#include "daemon/domain_tag.h"

namespace ferry {

Session::Session(SessionId id, std::string name, std::string token, Credentials credentials,
                 std::unique_ptr<TimelinePages> timelines, Limits limits, RecordBytes& of_uid,
                 absl::Time opened, uint64_t first_transfer)
    : id_(id),
      name_(std::move(name)),
      token_(std::move(token)),
      credentials_(credentials),
      limits_(std::move(limits)),
      opened_(opened),
      timelines_(std::move(timelines)),
      arenas_(id_, {.bytes = limits_.quota.bytes, .arenas = limits_.quota.arenas}),
      endings_(limits_.failures_kept),
      first_sequence_(first_transfer),
      next_sequence_(first_transfer),
      records_(limits_.record_bytes),
      of_uid_(of_uid) {}

SessionUse Session::use() const {
  home_.Check();
  SessionUse use;
  use.bytes = arenas_.use().bytes;
  use.arenas = arenas_.use().arenas;
  use.transfers_in_flight = in_flight_;
  return use;
}

const std::string& Session::TagOf(const std::string& domain) {
  home_.Check();
  if (auto known = domain_tags_.find(domain); known != domain_tags_.end()) return known->second;
  if (domain_tags_.size() == kDomainsKept) domain_tags_.clear();
  return domain_tags_[domain] = domain.empty() ? TagOfUid(limits_.domain_key, credentials_.uid)
                                               : TagOfName(limits_.domain_key, domain);
}

PostReply Session::Admit(PostBatch& batch) {
  home_.Check();
  PostReply reply;
  reply.first_transfer_id = next_sequence_;
  if (batch.prepare) {
    reply.prepared_batch = prepared_.Add(*timelines_, MakeTransferId(id_, next_sequence_), batch);
    Keep(prepared_.Find(reply.prepared_batch)->record_bytes);
  } else {
    over_devices_[batch.over_timeline] = batch.device;
    reply.first_over_value = timelines_->Reserve(batch.over_timeline, batch.specs.size());
  }
  next_sequence_ += batch.specs.size();
  in_flight_ += batch.specs.size();
  uint64_t value = reply.first_over_value;
  for (TransferSpec& spec : batch.specs) {
    if (batch.prepare) {
      spec.over_timeline = reply.prepared_batch;
    } else {
      spec.over_value = value++;
    }
    Keep(spec.record_bytes);
    arenas_.Pin(spec.layout);
  }
  return reply;
}

TransferId Session::AdmitOfJobs(const std::vector<TransferSpec>& specs) {
  home_.Check();
  const TransferId first = MakeTransferId(id_, next_sequence_);
  next_sequence_ += specs.size();
  in_flight_ += specs.size();
  for (const TransferSpec& spec : specs) {
    Keep(spec.record_bytes);
    arenas_.Pin(spec.layout);
  }
  return first;
}

void Session::OnEnded(const Ended& ended) {
  home_.Check();
  const uint64_t sequence = SequenceOf(ended.transfer);
  const bool ok = ended.status.ok();
  arenas_.Unpin(ended.layout, ended.count);
  in_flight_ -= ended.count;
  LetGo(ended.record_bytes);
  endings_.Count(ok, ended.count);
  if (!ended.prepared && ended.over_value == 0) return;  // a job's: that says how it ended
  if (!ok) endings_.AddFailures(sequence, ended.count, ended.status);
  if (ended.prepared) prepared_.OnEnded(ended.over_timeline);
  if (client_gone) return;
  for (uint32_t place = 0; place < ended.count; ++place) {
    if (!ended.prepared) timelines_->End(ended.over_timeline, ended.over_value + place, ok);
    endings_.Add({sequence + place, ended.route, ok});
  }
}

void Session::AfterEndings(absl::Time now) {
  home_.Check();
  const uint64_t freed = endings_.transfers_ok() + endings_.transfers_failed();
  if (freed == places_freed_) return;
  records_.Settle(now);
  of_uid_.Settle(now);
  places_.OnFreed(now, freed - places_freed_);
  places_freed_ = freed;
}

std::vector<PreparedRecord::Asker> Session::TakeReleased() {
  home_.Check();
  PreparedBook::Released released = prepared_.TakeReleased();
  LetGo(released.record_bytes);
  return std::move(released.askers);
}

}  // namespace ferry
