// SPDX-License-Identifier: Apache-2.0
// The messages of proto/ferry/v1 that the library sends and reads, coded by hand: a Protobuf
// runtime in a library that is loaded into other people's processes meets theirs. A codec test
// holds every field against protoc's code. Pure functions, any thread. Decoders answer false for
// bytes that are no message; unknown fields are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/ferry/ferry.h"
#include "client/status.h"

namespace ferry::client {

// ---- attach.sock ----

// How an 'over' counter stands.
struct CounterLine {
  uint64_t value = 0;
  uint64_t first_failed = 0;
  uint64_t failures = 0;
};
// What a session goes on with at another life of the daemon.
struct Resumption {
  std::vector<CounterLine> over;  // by index
  uint64_t next_transfer_id = 0;
  uint64_t incarnation = 0;    // of the life that was lost
  uint64_t prepared_from = 0;  // if the daemon has kFeaturePreparedFrom
};
// `resume` may be null.
std::string EncodeHello(uint64_t sequence, std::string_view name, const Resumption* resume);
// Numbered as ferry.v1.ArenaMemory.
enum class ArenaMemory { kMemfd = 1, kCudaAllocate = 2, kCudaVmm = 3, kCudaIpc = 4 };
// RegisterArena but for the descriptors.
struct ArenaRequest {
  uint64_t device = 0;
  uint64_t bytes = 0;
  bool imported = false;
  ArenaMemory memory = ArenaMemory::kMemfd;
  std::vector<uint64_t> segment_bytes = {};  // kCudaVmm
  std::string ipc_handle = {};               // kCudaIpc
  uint64_t ipc_offset = 0;
};
std::string EncodeRegisterArena(uint64_t sequence, const ArenaRequest& arena);
std::string EncodeReleaseArena(uint64_t sequence, uint64_t arena, bool freed);
std::string EncodeResetTimeline(uint64_t sequence, uint32_t timeline);
std::string EncodeReleasePrepared(uint64_t sequence, uint32_t batch);
std::string EncodePing(uint64_t sequence);
// What one packet may have, either way.
inline constexpr size_t kMaxPacket = 131072;
// Bit of Welcome::features: the daemon takes posts over attach.sock.
inline constexpr uint64_t kFeatureSocketPosts = 1;
// And this one: it resumes sessions.
inline constexpr uint64_t kFeatureResume = 2;
// And it knows prepared batches.
inline constexpr uint64_t kFeaturePrepared = 4;
// And it takes arenas on GPUs.
inline constexpr uint64_t kFeatureGpuArenas = 8;
// And it runs programs.
inline constexpr uint64_t kFeaturePrograms = 16;
// And it fires jobs.
inline constexpr uint64_t kFeaturePreparedJobs = 32;
// And it takes as many descriptors a packet as kMostFds; else two.
inline constexpr uint64_t kFeatureManyDescriptors = 64;
inline constexpr size_t kMostFds = 250;
// And words of prepared batches begin in a resumed session where the client says.
inline constexpr uint64_t kFeaturePreparedFrom = 128;
// And it answers a ping.
inline constexpr uint64_t kFeaturePing = 256;

struct DeviceInfo {
  uint64_t id = 0;
  int kind = 0;
  std::string name;
  std::string uuid;  // of a GPU: 16 bytes
};
inline constexpr int kHostDevice = 1;
inline constexpr int kGpuDevice = 2;

struct Welcome {
  uint32_t protocol = 0;
  uint64_t features = 0;
  uint64_t session_id = 0;
  std::string token;
  uint64_t incarnation = 0;
  std::string node;
  std::vector<DeviceInfo> devices;
  ferry_limits limits{sizeof(ferry_limits), 0, 0, 0, 0};
};

struct AttachResponse {
  enum class Kind {
    kNone,
    kWelcome,
    kArenaRegistered,
    kArenaReleased,
    kTimelineReset,
    kNotice,
    kPosted,
    kPreparedReleased,
    kPong
  };
  uint64_t sequence = 0;
  StatusPtr error;
  Kind kind = Kind::kNone;
  Welcome welcome;
  uint64_t arena_id = 0;
  uint64_t mapped_bytes = 0;
  bool draining = false;
  uint64_t first_transfer_id = 0;
  uint64_t first_over_value = 0;
  uint32_t prepared_batch = 0;
};

bool DecodeAttachResponse(std::string_view bytes, AttachResponse* response);

// ---- posting ----

enum class Direction { kSend, kReceive, kRun };

// A whole batch as the application gave it; nothing is copied.
struct PostBatch {
  Direction direction = Direction::kSend;
  uint64_t device = 0;
  const ferry_transfer* transfers = nullptr;
  size_t count = 0;
  const ferry_post_options* options = nullptr;  // not null
  bool prepare = false;
  const struct ProgramRun* runs = nullptr;  // kRun: `count` of them, and no transfers
};

// A run of a program, with what handles stand for.
struct ProgramRun {
  const ferry_run* given = nullptr;
  std::string_view fingerprint;
  uint64_t first_after = 0;
  size_t after = 0;
  uint64_t first_fed = 0;
  size_t fed = 0;
  // By binding: the prepared batch that it is joined to. Or empty: none is.
  static constexpr uint32_t kNotJoined = UINT32_MAX;
  std::vector<uint32_t> joined = {};
};

// CrossHostSendRequest, CrossHostReceiveRequest or RunRequest.
std::string EncodePost(const PostBatch& batch);
// PostTransfersRequest; not of runs.
std::string EncodeStreamPost(uint64_t sequence, const PostBatch& batch);
// AttachRequest; empty if the batch does not fit a packet.
std::string EncodeSocketPost(uint64_t sequence, const PostBatch& batch);

struct PostAnswer {
  uint64_t sequence = 0;
  StatusPtr error;
  uint64_t first_transfer_id = 0;
  uint64_t first_over_value = 0;
  uint32_t prepared_batch = 0;
};

// CrossHostSendResponse, CrossHostReceiveResponse or RunResponse.
bool DecodePostAnswer(std::string_view bytes, PostAnswer* answer);
// PostTransfersResponse.
bool DecodeStreamPostAnswer(std::string_view bytes, PostAnswer* answer);

// ---- programs (codec_program.cc) ----

// CompileRequest.
std::string EncodeCompile(uint64_t device, std::string_view text);
// RunRequest, and in an AttachRequest.
std::string EncodeRun(const PostBatch& batch);
std::string EncodeSocketRun(uint64_t sequence, const PostBatch& batch);

// What a compiled program is.
struct ProgramInfo {
  struct Buffer {
    std::string name;
    int access = 0;  // as ferry.v1.ProgramAccess
    uint64_t bytes = 0;
    bool donated = false;
    bool constant = false;
  };
  std::string fingerprint;
  std::vector<Buffer> buffers;
  uint64_t scratch_bytes = 0;
  std::string plan;
};
// CompileResponse.
bool DecodeCompiled(std::string_view bytes, ProgramInfo* program);

// ---- transfers ----

// `poison` null: a plain cancel.
std::string EncodeCancel(uint64_t first_id, size_t count, const char* poison);
std::string EncodeGetTransfers(uint64_t first_id, size_t count);
std::string EncodeWatch(uint64_t after_event);

struct TransferInfo {
  uint64_t id = 0;
  int state = 0;     // as ferry.v1.TransferState
  int route = 0;     // FERRY_ROUTE_...; 0: none yet, or not known any more
  StatusPtr status;  // null: not over, or well
};

inline constexpr int kTransferWaiting = 1;  // for its other half
inline constexpr int kTransferMatched = 2;  // waits to be defined

bool DecodeGetTransfers(std::string_view bytes, std::vector<TransferInfo>* transfers);

struct ClusterDeviceInfo {
  DeviceInfo device;  // kind 0: only its id is known
  std::string node;
  bool local = false;
};
// ListClusterDevicesResponse; the request is empty.
bool DecodeClusterDevices(std::string_view bytes, std::vector<ClusterDeviceInfo>* devices);

struct DomainMember {
  std::string domain;  // empty: the uid's
  uint64_t device = 0;
  std::string name;
};
// JoinDomainRequest.
std::string EncodeJoinDomain(const DomainMember& member);

struct WatchEvents {
  uint64_t first_event = 0;
  std::vector<TransferInfo> ended;
};

bool DecodeWatch(std::string_view bytes, WatchEvents* events);

// What is no UTF-8 as '?': messages with it are refused as a whole.
std::string Utf8(std::string_view text);

// ---- errors ----

// google.rpc.Status with ErrorInfo and BadRequest; null if its code is 0 or the bytes are no
// message.
StatusPtr DecodeStatus(std::string_view bytes);

}  // namespace ferry::client
