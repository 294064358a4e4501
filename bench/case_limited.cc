// SPDX-License-Identifier: Apache-2.0
// What quantising is for: a program that sends MXFP8 over a slow link and has bfloat16 again at the
// other end, against sending the bfloat16.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/cases.h"
#include "ferry/program.hpp"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr int64_t kElements = int64_t{64} << 20;
constexpr uint64_t kElementBytes = 2;
constexpr int kChunks = 16;  // each is sent while the next one is quantised
constexpr int64_t kChunk = kElements / kChunks;
constexpr int64_t kScaled = 32;

struct LimitedEnd {
  Session session;
  Arena arena;
  Program program;
  uint64_t device = 0;
};

TensorType Of(int element, int64_t elements) { return {element, {elements}}; }

std::string SenderText() {
  ProgramBuilder builder;
  for (int i = 0; i < kChunks; ++i) {
    const auto values =
        builder.Op("quantize_block",
                   {builder.Input("x", Of(FERRY_BF16, kChunk),
                                  static_cast<uint64_t>(i * kChunk) * kElementBytes)},
                   absl::StrCat("block=", kScaled),
                   {Of(FERRY_F8E4M3FN, kChunk), Of(FERRY_F8E8M0FNU, kChunk / kScaled)});
    builder.Send(values[0], "other", absl::StrCat("elements/", i));
    builder.Send(values[1], "other", absl::StrCat("scales/", i));
  }
  return builder.Text();
}

std::string ReceiverText() {
  ProgramBuilder builder;
  std::vector<std::array<ProgramBuilder::Value, 2>> chunks;
  for (int i = 0; i < kChunks; ++i) {
    chunks.push_back(
        {builder.Receive("other", absl::StrCat("elements/", i), Of(FERRY_F8E4M3FN, kChunk)),
         builder.Receive("other", absl::StrCat("scales/", i),
                         Of(FERRY_F8E8M0FNU, kChunk / kScaled))});
  }
  for (int i = 0; i < kChunks; ++i) {
    const auto& [elements, scales] = chunks[static_cast<size_t>(i)];
    builder.Store("y",
                  builder.Op("dequantize_block", {elements, scales},
                             absl::StrCat("block=", kScaled), Of(FERRY_BF16, kChunk)),
                  static_cast<uint64_t>(i * kChunk) * kElementBytes);
  }
  return builder.Text();
}

absl::StatusOr<LimitedEnd> OpenLimited(const Nodes& nodes, int node, const std::string& text) {
  SessionOptions options;
  options.client_dir = nodes.ClientDir(node);
  Result<Session> session = Session::Open(options);
  if (!session.ok()) return Failed("open a session", session.status());
  const auto device = static_cast<uint64_t>(nodes.Host(node));
  Result<Arena> arena = session->CreateArena(device, kElements * kElementBytes);
  if (!arena.ok()) return Failed("make an arena", arena.status());
  Result<Program> program = Program::Compile(*session, device, text);
  if (!program.ok()) return Failed("compile a program", program.status());
  return LimitedEnd{std::move(*session), std::move(*arena), std::move(*program), device};
}

// Until the receiver has all of it.
absl::StatusOr<absl::Duration> SendPlain(LimitedEnd& from, LimitedEnd& to) {
  PostOptions options;
  options.route = FERRY_ROUTE_UCX;
  const absl::Time begin = absl::Now();
  Result<Batch> receive = to.session.Receive(
      to.device, {Transfer(from.device, "plain", {to.arena.Range(0, kElements * kElementBytes)})},
      options);
  if (!receive.ok()) return Failed("receive", receive.status());
  Result<Batch> send = from.session.Send(
      from.device, {Transfer(to.device, "plain", {from.arena.Range(0, kElements * kElementBytes)})},
      options);
  if (!send.ok()) return Failed("send", send.status());
  if (Status status = receive->Wait(); !status.ok()) return Failed("wait", status);
  const absl::Duration elapsed = absl::Now() - begin;
  if (Status status = send->Wait(); !status.ok()) return Failed("wait for the send", status);
  return elapsed;
}

absl::StatusOr<absl::Duration> SendQuantised(const LimitedEnd& from, const LimitedEnd& to) {
  PostOptions options;
  options.route = FERRY_ROUTE_UCX;
  ProgramRun receiving = to.program.Run({{"y", to.arena.Range(0, kElements * kElementBytes)}});
  receiving.peers = {{"other", from.device}};
  ProgramRun sending = from.program.Run({{"x", from.arena.Range(0, kElements * kElementBytes)}});
  sending.peers = {{"other", to.device}};
  const absl::Time begin = absl::Now();
  Result<Batch> receiver = RunPrograms(to.session, to.device, {receiving}, options);
  if (!receiver.ok()) return Failed("run the receiver", receiver.status());
  Result<Batch> sender = RunPrograms(from.session, from.device, {sending}, options);
  if (!sender.ok()) return Failed("run the sender", sender.status());
  if (Status status = receiver->Wait(); !status.ok()) return Failed("wait", status);
  const absl::Duration elapsed = absl::Now() - begin;
  if (Status status = sender->Wait(); !status.ok()) return Failed("wait for the sender", status);
  return elapsed;
}

// Small integers are their own MXFP8 values, so that what came can be compared exactly. Other ones
// for each `number`, in each place.
void FillBfloat16(const Arena& arena, int64_t number) {
  auto* const at = static_cast<uint16_t*>(arena.data());
  for (int64_t i = 0; i < kElements; ++i) {
    const auto value = static_cast<float>((i * 7 + i / 1000 + number) % 15 - 7);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    at[i] = static_cast<uint16_t>(bits >> 16);
  }
}

}  // namespace

absl::Status MeasureLimited(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(LimitedEnd from, OpenLimited(nodes, 0, SenderText()));
  ASSIGN_OR_RETURN(LimitedEnd to, OpenLimited(nodes, 1, ReceiverText()));
  std::vector<double> plain, quantised;
  int64_t runs = 0;
  for (int round = 0; round <= settings.rounds; ++round) {  // the first warms up
    for (const bool program : {false, true}) {
      FillBfloat16(from.arena, runs++);
      std::memset(to.arena.data(), 0x5A, kElements * kElementBytes);
      ASSIGN_OR_RETURN(const absl::Duration elapsed,
                       program ? SendQuantised(from, to) : SendPlain(from, to));
      if (std::memcmp(from.arena.data(), to.arena.data(), kElements * kElementBytes) != 0) {
        return Error(absl::StatusCode::kDataLoss, Reason::kInternal, "the bytes differ");
      }
      if (round > 0) {
        (program ? quantised : plain).push_back(absl::ToDoubleMilliseconds(elapsed));
      }
    }
  }
  Row row;
  row.name = "64 Mi bfloat16 quantised, sent and dequantised, link of 1 GB/s";
  row.unit = "ms";
  row.warm = tools::Median(quantised);
  row.peer = "the bfloat16 sent";
  row.peer_warm = tools::Median(plain);
  row.at_most = true;
  row.target = 1 / 1.7;
  report.Add(row);
  return absl::OkStatus();
}

}  // namespace ferry::bench
