// SPDX-License-Identifier: Apache-2.0
// The messages of proto/ferry/v1 that the library sends and reads, coded by hand: a Protobuf
// runtime in a library that is loaded into other people's processes clashes with theirs. A codec
// test compares every field with protoc's code. Pure functions, any thread. Decoders return false
// for bytes that are not the message; they skip unknown fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/ferry/ferry.h"
#include "client/status.h"

namespace ferry::client {

// ---- attach.sock ----

// The state of one 'over' counter.
struct CounterLine {
  uint64_t value = 0;
  uint64_t first_failed = 0;
  uint64_t failures = 0;
};
// What a session tells the next life of the daemon, to go on there.
struct Resumption {
  std::vector<CounterLine> over;  // by index
  uint64_t next_transfer_id = 0;
  uint64_t incarnation = 0;  // the life that was lost
  uint64_t prepared_from = 0;
};
// `resume` null: opens a new session.
std::string EncodeHello(uint64_t sequence, std::string_view name, const Resumption* resume);
// Numbered as ferry.v1.ArenaMemory.
enum class ArenaMemory { kMemfd = 1, kCudaAllocate = 2, kCudaVmm = 3, kCudaIpc = 4 };
// RegisterArena without its descriptors.
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
// The most bytes of one packet, in either direction.
inline constexpr size_t kMaxPacket = 131072;
// The most descriptors with one packet.
inline constexpr size_t kMostFds = 250;
// The versions of the protocol with the daemon that the library speaks: the oldest and the newest.
inline constexpr uint32_t kOldestProtocol = 2;
inline constexpr uint32_t kProtocol = 2;

struct DeviceInfo {
  uint64_t id = 0;
  int kind = 0;
  std::string name;
  std::string uuid;  // a GPU's: 16 bytes; else empty
};
inline constexpr int kHostDevice = 1;
inline constexpr int kGpuDevice = 2;

struct Welcome {
  uint32_t protocol = 0;
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

// A whole batch, as pointers to what the application gave; copies nothing.
struct PostBatch {
  Direction direction = Direction::kSend;
  uint64_t device = 0;
  const ferry_transfer* transfers = nullptr;
  size_t count = 0;
  const ferry_post_options* options = nullptr;  // not null
  bool prepare = false;
  const struct ProgramRun* runs = nullptr;  // kRun: `count` runs, and no transfers
};

// A run of a program: the application's struct, and the ids that its handles stand for.
struct ProgramRun {
  const ferry_run* given = nullptr;
  std::string_view fingerprint;
  // Transfers of `given->after`: first id and number.
  uint64_t first_after = 0;
  size_t after = 0;
  // Transfers of `given->feeds`: first id and number.
  uint64_t first_fed = 0;
  size_t fed = 0;
  // By binding: the number of the prepared batch that it is joined to, or kNotJoined. Empty: no
  // binding is joined.
  static constexpr uint32_t kNotJoined = UINT32_MAX;
  std::vector<uint32_t> joined = {};
};

// The request of a unary call: CrossHostSendRequest, CrossHostReceiveRequest or RunRequest.
std::string EncodePost(const PostBatch& batch);
// AttachRequest, for attach.sock; empty if the batch does not fit a packet.
std::string EncodeSocketPost(uint64_t sequence, const PostBatch& batch);

struct PostAnswer {
  uint64_t first_transfer_id = 0;
  uint64_t first_over_value = 0;
  uint32_t prepared_batch = 0;
};

// CrossHostSendResponse, CrossHostReceiveResponse or RunResponse.
bool DecodePostAnswer(std::string_view bytes, PostAnswer* answer);

// ---- programs (codec_program.cc) ----

// CompileRequest.
std::string EncodeCompile(uint64_t device, std::string_view text);
// RunRequest by itself, and within an AttachRequest.
std::string EncodeRun(const PostBatch& batch);
std::string EncodeSocketRun(uint64_t sequence, const PostBatch& batch);

// What the daemon says of a compiled program.
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

// `poison` null: cancels; else poisons with that text.
std::string EncodeCancel(uint64_t first_id, size_t count, const char* poison);
std::string EncodeGetTransfers(uint64_t first_id, size_t count);
std::string EncodeWatch(uint64_t after_event);

struct TransferInfo {
  uint64_t id = 0;
  int state = 0;     // as ferry.v1.TransferState
  int route = 0;     // FERRY_ROUTE_...; 0: none yet, or not known any more
  StatusPtr status;  // null: not over, or ended well
};

inline constexpr int kTransferWaiting = 1;  // waits for its other half
inline constexpr int kTransferMatched = 2;  // waits to be defined

bool DecodeGetTransfers(std::string_view bytes, std::vector<TransferInfo>* transfers);

// A device of the cluster. If `device.kind` is 0 only the device's id is known.
struct ClusterDeviceInfo {
  DeviceInfo device;  // kind 0: only its id is known
  std::string node;
  bool local = false;
};
// ListClusterDevicesResponse; the request is an empty message.
bool DecodeClusterDevices(std::string_view bytes, std::vector<ClusterDeviceInfo>* devices);

struct DomainMember {
  std::string domain;  // empty: the domain of the uid
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

// `text` with each byte that is not UTF-8 replaced by '?': a message with such bytes is refused
// whole.
std::string Utf8(std::string_view text);

// ---- errors ----

// google.rpc.Status with ErrorInfo and BadRequest; null if its code is 0 or the bytes are no
// message.
StatusPtr DecodeStatus(std::string_view bytes);

}  // namespace ferry::client
