// SPDX-License-Identifier: Apache-2.0
// The first program of docs/first-program.md: y = 0.5 x as bf16, by the daemon.
#include <cstdint>
#include <cstdio>

#include "ferry/program.hpp"

namespace {

int Fail(const ferry::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main() {
  ferry::ProgramBuilder builder;
  const ferry::TensorType type{FERRY_F32, {1024}};
  const auto x = builder.Input("x", type);
  builder.Store("y", builder.Convert(builder.Multiply(x, builder.Splat(0.5, type)), FERRY_BF16));

  auto session = ferry::Session::Open();
  if (!session) return Fail(session.status());
  const uint64_t device = session->devices().front().global_device_id;
  auto program = ferry::Program::Compile(*session, device, builder.Text());
  if (!program) return Fail(program.status());
  auto arena = session->CreateArena(device, 4096 + 2048);
  if (!arena) return Fail(arena.status());
  auto* numbers = static_cast<float*>(arena->data());
  for (int i = 0; i < 1024; ++i) numbers[i] = static_cast<float>(i);

  auto job = ferry::RunPrograms(
      *session, device,
      {program->Run({{"x", arena->Range(0, 4096)}, {"y", arena->Range(4096, 2048)}})});
  if (!job) return Fail(job.status());
  if (ferry::Status status = job->Wait(); !status.ok()) return Fail(status);
  const auto* halves = reinterpret_cast<const uint16_t*>(numbers + 1024);
  std::printf("half of 3 is 0x%04x in bf16\n", static_cast<unsigned>(halves[3]));  // 0x3fc0
  return 0;
}
