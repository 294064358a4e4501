// SPDX-License-Identifier: Apache-2.0
// Batches of runs of programs: what a good one becomes, and all that is wrong with bad ones.
#include <string>
#include <vector>

#include "daemon/rpc/convert.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;

v1::RunRequest Runs(int count) {
  v1::RunRequest request;
  request.set_device_id(3);
  for (int i = 0; i < count; ++i) {
    v1::ProgramRun* run = request.add_runs();
    run->set_fingerprint(std::string(32, 'f'));
    v1::ProgramBinding* binding = run->add_bindings();
    binding->set_name("x");
    binding->mutable_range()->set_arena_id(9);
    binding->mutable_range()->set_offset(64 * static_cast<uint64_t>(i));
    binding->mutable_range()->set_length(64);
  }
  return request;
}

std::vector<std::string> FieldsOf(const v1::RunRequest& request) {
  std::vector<std::string> fields;
  for (const Violation& violation : Convert(request).violations) {
    fields.push_back(violation.field);
  }
  return fields;
}

TEST(ConvertRun, AGoodOneIsABatchOfJobs) {
  v1::RunRequest request = Runs(2);
  request.set_request_id("once");
  request.mutable_options()->set_over_timeline(5);
  request.mutable_options()->set_priority(-7);
  request.mutable_options()->mutable_deadline()->set_seconds(9);
  v1::ProgramRun* run = request.mutable_runs(1);
  request.set_domain("job");
  request.mutable_options()->set_route(v1::ROUTE_UCX);
  v1::ProgramPeer* peer = run->add_peers();
  peer->set_name("next");
  peer->set_device_id(9);
  run->set_key_suffix("/1");
  run->mutable_bindings(0)->set_data_type(v1::DATA_TYPE_BF16);
  run->mutable_defined_at()->set_timeline(63);
  run->mutable_defined_at()->set_value(12);
  run->mutable_deadline()->set_seconds(2);
  run->mutable_after()->set_first(4);
  run->mutable_after()->set_count(4096);
  run->mutable_defines()->set_timeline(1);
  run->mutable_defines()->set_value(3);
  run->mutable_feeds()->set_first(6);
  run->mutable_feeds()->set_count(1);
  const PostBatch batch = Convert(request);
  EXPECT_THAT(batch.violations, IsEmpty());
  EXPECT_TRUE(batch.runs_programs);
  EXPECT_EQ(batch.device, GlobalDeviceId(3));
  EXPECT_EQ(batch.request_id, "once");
  EXPECT_NE(batch.request_hash, 0u);
  EXPECT_EQ(batch.over_timeline, 5u);
  EXPECT_THAT(batch.deadlines, ElementsAre(absl::Seconds(9), absl::Seconds(2)));
  ASSERT_EQ(batch.specs.size(), 2u);
  ASSERT_EQ(batch.jobs.size(), 2u);
  EXPECT_EQ(batch.specs[0].priority, -7);
  EXPECT_TRUE(batch.specs[0].defined);
  EXPECT_FALSE(batch.jobs[0].bindings[0].type.has_value());
  EXPECT_EQ(batch.jobs[0].after.count, 0u);
  EXPECT_EQ(batch.jobs[0].defines_value, 0u);
  EXPECT_THAT(batch.specs[1].layout.extents(), ElementsAre(Range{ArenaId(9), 64, 64}));
  EXPECT_FALSE(batch.specs[1].defined);
  EXPECT_EQ(batch.specs[1].defined_timeline, 63u);
  EXPECT_EQ(batch.specs[1].defined_value, 12u);
  const JobSpec& job = batch.jobs[1];
  EXPECT_EQ(batch.domain, "job");
  EXPECT_EQ(batch.specs[1].route, Route::kUcx);
  ASSERT_EQ(job.peers.size(), 1u);
  EXPECT_EQ(job.peers[0].name, "next");
  EXPECT_EQ(job.peers[0].device, GlobalDeviceId(9));
  EXPECT_EQ(job.key_suffix, "/1");
  EXPECT_EQ(job.fingerprint, std::string(32, 'f'));
  EXPECT_EQ(job.bindings[0].name, "x");
  EXPECT_EQ(job.bindings[0].type, compute::DType::kBF16);
  EXPECT_EQ(job.after.first, 4u);
  EXPECT_EQ(job.after.count, 4096u);
  EXPECT_EQ(job.defines_timeline, 1u);
  EXPECT_EQ(job.defines_value, 3u);
  EXPECT_EQ(job.feeds.first, 6u);
  EXPECT_EQ(job.feeds.count, 1u);
}

TEST(ConvertRun, PreparedOnesAreFiredByWordsAndJoinedByWhatIsBound) {
  v1::RunRequest request = Runs(2);
  request.mutable_runs(0)->mutable_bindings(0)->set_prepared_batch(0);
  EXPECT_THAT(FieldsOf(request), ElementsAre("runs[0].bindings[0]")) << "it is not prepared";
  request.set_prepare(true);
  const PostBatch batch = Convert(request);
  EXPECT_THAT(batch.violations, IsEmpty());
  EXPECT_TRUE(batch.prepare);
  EXPECT_TRUE(batch.specs[0].prepared);
  EXPECT_EQ(batch.jobs[0].bindings[0].prepared, 0u);
  EXPECT_EQ(batch.jobs[1].bindings[0].prepared, std::nullopt);
  v1::ProgramRun* run = request.mutable_runs(1);
  run->mutable_defined_at();
  run->mutable_after();
  run->mutable_defines();
  run->mutable_feeds();
  run->add_peers();  // who knows the program says whether it may be prepared
  run->set_key_suffix("/1");
  EXPECT_THAT(FieldsOf(request), ElementsAre("runs[1].defined_at", "runs[1].after",
                                             "runs[1].defines", "runs[1].feeds"));
}

TEST(ConvertRun, EveryBadFieldIsNamed) {
  EXPECT_THAT(FieldsOf(Runs(0)), ElementsAre("runs"));
  EXPECT_THAT(FieldsOf(Runs(4097)), ElementsAre("runs"));
  v1::RunRequest request = Runs(3);
  request.set_request_id(std::string(65, 'r'));
  request.mutable_options()->set_over_timeline(64);
  request.mutable_options()->set_route(v1::ROUTE_UCX);
  request.mutable_runs(0)->set_fingerprint("short");
  request.mutable_runs(0)->mutable_bindings(0)->set_data_type(v1::DATA_TYPE_C64);
  request.mutable_runs(1)->mutable_defined_at()->set_timeline(64);
  request.mutable_runs(1)->mutable_deadline()->set_seconds(-1);
  request.mutable_runs(2)->mutable_after()->set_count(4097);
  request.mutable_runs(2)->mutable_feeds()->set_count(5000);
  request.mutable_runs(2)->mutable_defines()->set_timeline(64);
  request.set_domain(std::string(33, 'd'));
  for (int i = 0; i < 257; ++i) request.mutable_runs(2)->add_peers()->set_name("p");
  request.mutable_runs(2)->set_key_suffix(std::string(65, 'k'));
  EXPECT_THAT(
      FieldsOf(request),
      ElementsAre("request_id", "domain", "options.over_timeline", "runs[0].fingerprint",
                  "runs[0].bindings[0]", "runs[1].defined_at", "runs[1].deadline", "runs[2].peers",
                  "runs[2].key_suffix", "runs[2].after", "runs[2].feeds", "runs[2].defines"));
  request = Runs(1);
  for (int i = 0; i < 256; ++i) request.mutable_runs(0)->add_bindings()->set_name("y");
  EXPECT_THAT(FieldsOf(request), ElementsAre("runs[0].bindings"));
}

}  // namespace
}  // namespace ferry
