// SPDX-License-Identifier: Apache-2.0
// A request that is refused as FIELD_INVALID is told which of its fields is bad, as its message
// calls it.
#include "base/field_error.h"

#include <sys/eventfd.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/rpc/status_proto.h"
#include "google/rpc/error_details.pb.h"
#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using testing::Is;
using testing::kAlice;
using testing::kConnection;
using testing::SealedMemfd;
using testing::SessionTableRig;

// Of an error as it goes out: "code/reason field".
std::string Told(const absl::Status& status) {
  google::rpc::Status proto;
  ToProto(status, {}, &proto);
  std::string told = testing::NameOf(status);
  for (const auto& detail : proto.details()) {
    google::rpc::BadRequest bad;
    if (!detail.UnpackTo(&bad)) continue;
    for (const auto& violation : bad.field_violations())
      absl::StrAppend(&told, " ", violation.field());
  }
  return told;
}

TEST(FieldErrorTest, AnErrorSaysWhichFieldUnlessItDoesAlready) {
  const absl::Status plain =
      Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, "bad", {{"device", "7"}});
  EXPECT_EQ(Told(plain), "INVALID_ARGUMENT/FIELD_INVALID");
  const absl::Status named = OfField(plain, "memory");
  EXPECT_EQ(Told(named), "INVALID_ARGUMENT/FIELD_INVALID memory");
  EXPECT_EQ(named.message(), "bad");
  EXPECT_EQ(MetadataOf(named).at("device"), "7");
  EXPECT_EQ(Told(OfField(Annotate(FieldError("bytes", "none"), "register"), "memory")),
            "INVALID_ARGUMENT/FIELD_INVALID bytes");
  const absl::Status other = Error(absl::StatusCode::kNotFound, Reason::kIdStale, "gone");
  EXPECT_EQ(Told(OfField(other, "memory")), "NOT_FOUND/ID_STALE");
  EXPECT_THAT(OfField(absl::OkStatus(), "memory"), Is("OK"));
}

class RefusedRequests : public ::testing::Test {
 protected:
  std::string Register(uint64_t bytes, std::vector<UniqueFd> fds,
                       MemoryKind kind = MemoryKind::kMemfd) {
    const AttachRegisterArena request{GlobalDeviceId(1), {kind, bytes}, false};
    return Told(rig_.Command(kConnection, request, kAlice, std::move(fds)).error);
  }
  static std::vector<UniqueFd> One(UniqueFd fd) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(fd));
    return fds;
  }
  // Of a hello that goes on with `fds`.
  std::string Resume(uint64_t next_transfer_id, std::vector<UniqueFd> fds,
                     std::vector<TimelinePages::Mark> over = {}) {
    AttachHello hello = SessionTableRig::Hello();
    hello.resume = AttachResume{std::move(over), next_transfer_id, Incarnation(41), 0};
    return Greet(std::move(hello), std::move(fds));
  }
  std::string Greet(AttachHello hello, std::vector<UniqueFd> fds = {}) {
    rig_.table.OnConnected(++connection_, {});
    return Told(rig_.Command(connection_, std::move(hello), kAlice, std::move(fds)).error);
  }

  SessionTableRig rig_;
  Door::ConnectionId connection_ = kConnection;
};

TEST_F(RefusedRequests, ArenasAreToldWhatOfTheirMemoryIsBad) {
  Session* session = rig_.Open(kConnection);
  const std::string invalid = "INVALID_ARGUMENT/FIELD_INVALID ";
  EXPECT_EQ(Register(0, One(SealedMemfd(4096))), invalid + "bytes");
  EXPECT_EQ(Register(8192, One(SealedMemfd(4096))), invalid + "memory");
  EXPECT_EQ(Register(4096, {}), invalid + "memory");
  EXPECT_EQ(Register(8, One(UniqueFd(eventfd(0, EFD_CLOEXEC)))), invalid + "memory");
  EXPECT_EQ(Register(4096, {}, MemoryKind::kCudaAllocate), invalid + "memory");
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  const Ended ended = rig_.Start(*session, arena);
  EXPECT_EQ(Told(rig_.Command(kConnection, AttachReleaseArena{arena}).error),
            "FAILED_PRECONDITION/FIELD_INVALID arena_id");
  session->OnEnded(ended);
}

TEST_F(RefusedRequests, CountersAndNamesAreTold) {
  rig_.Open(kConnection);
  EXPECT_EQ(Told(rig_.Command(kConnection, AttachResetTimeline{64}).error),
            "INVALID_ARGUMENT/FIELD_INVALID timeline");
  EXPECT_EQ(Greet(SessionTableRig::Hello("two words")), "INVALID_ARGUMENT/FIELD_INVALID name");
}

TEST_F(RefusedRequests, ResumesAreToldWhatTheyCannotGoOnWith) {
  const std::string invalid = "INVALID_ARGUMENT/FIELD_INVALID ";
  const auto good = [] { return One(SealedMemfd(FERRY_TIMELINE_BYTES)); };
  EXPECT_EQ(Resume(1, {}), invalid + "resume");
  EXPECT_EQ(Resume(1, One(SealedMemfd(4096))), invalid + "resume");
  EXPECT_EQ(Resume(0, good()), invalid + "resume.next_transfer_id");
  EXPECT_EQ(Resume(1, good(), {{~uint64_t{0}, 0, 0}}), invalid + "resume");
}

}  // namespace
}  // namespace ferry
