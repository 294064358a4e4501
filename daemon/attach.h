// SPDX-License-Identifier: Apache-2.0
// The messages of attach.sock as plain data. What each means, and its errors, is in
// proto/ferry/v1/session.proto; daemon/rpc/attach_codec turns packets into these structs and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "daemon/post.h"
#include "daemon/protocol.h"
#include "device/memory.h"
#include "device/timeline.h"

namespace ferry {

// What a client still has of its session when it has lost its daemon and attaches to the next one.
struct AttachResume {
  std::vector<TimelinePages::Mark> over;  // one mark for each 'over' counter
  uint64_t next_transfer_id = 0;
  Incarnation incarnation;  // the daemon that the client lost
  // Numbers of prepared batches below this one belong to the session's former life.
  uint64_t prepared_from = 0;
};

struct AttachHello {
  ProtocolVersions protocol;
  std::string name;
  std::string client_version;
  std::string token;
  std::optional<AttachResume> resume = std::nullopt;
};
struct AttachRegisterArena {
  GlobalDeviceId device;
  MemoryShare memory;
  bool imported = false;
};
struct AttachReleaseArena {
  ArenaId arena;
  bool freed = false;  // true: the client has freed it; it is unmapped once no transfer uses it
};
struct AttachResetTimeline {
  uint32_t timeline = 0;
};
struct AttachReleasePrepared {
  uint32_t batch = 0;
};
struct AttachPing {};
struct AttachCommand {
  uint64_t sequence = 0;
  std::variant<AttachHello, AttachRegisterArena, AttachReleaseArena, AttachResetTimeline, PostBatch,
               AttachReleasePrepared, AttachPing>
      body;
};

struct DeviceInfo {
  GlobalDeviceId id;
  std::string name;
  bool gpu = false;
  std::string uuid = {};  // 16 bytes for a GPU; "" for a host device
};

// Numbers of one session: what it uses, or its limits.
struct SessionUse {
  uint64_t bytes = 0;
  uint64_t arenas = 0;
  uint64_t transfers_in_flight = 0;
  uint32_t batch_transfers = 0;
};

struct AttachWelcome {
  uint32_t protocol = kClientProtocol.newest;  // there is no other one yet that both may speak
  SessionId session;
  std::string token;
  Incarnation incarnation;
  std::string node;
  std::vector<DeviceInfo> devices;
  SessionUse limits;
};
struct AttachArenaRegistered {
  ArenaId arena;
  uint64_t mapped_bytes = 0;  // true size of memory that the daemon allocated; else 0
};
struct AttachArenaReleased {};
struct AttachTimelineReset {};
struct AttachPosted {
  enum class What { kSend, kReceive, kRun } what = What::kSend;
  uint64_t first_transfer_id = 0;
  uint64_t first_over_value = 0;
  uint32_t prepared_batch = 0;
};
struct AttachPreparedReleased {};
struct AttachPong {};
struct AttachNotice {
  bool draining = false;
};
struct AttachReply {
  uint64_t sequence = 0;
  absl::Status error;  // if not OK, the body is not sent
  std::variant<AttachWelcome, AttachArenaRegistered, AttachArenaReleased, AttachTimelineReset,
               AttachPosted, AttachPreparedReleased, AttachPong, AttachNotice>
      body;
  std::vector<Violation> violations = {};  // the bad entries of a batch that was refused
};

}  // namespace ferry
