// SPDX-License-Identifier: Apache-2.0
// One process plays both ends: sends a text from host device A to host device B of the node's
// daemon.
//
// With CMake see CMakeLists.txt; with pkg-config:
//   c++ -std=c++17 hello_transfer.cc $(pkg-config --cflags --libs ferry) -o hello_transfer
// Run:
//   ferryd --devices host:2 --runtime-dir /tmp/ferry &
//   FERRY_CLIENT_DIR=/tmp/ferry/client ./hello_transfer
#include <cstdint>
#include <cstdio>
#include <string>

#include "ferry/ferry.hpp"

namespace {

int Fail(const char* doing, const ferry::Status& status) {
  std::fprintf(stderr, "%s: %s\n", doing, status.ToString().c_str());
  for (const auto& violation : status.violations()) {
    std::fprintf(stderr, "  %.*s: %.*s\n", static_cast<int>(violation.field.size()),
                 violation.field.data(), static_cast<int>(violation.text.size()),
                 violation.text.data());
  }
  return 1;
}

}  // namespace

int main() {
  auto session = ferry::Session::Open();
  if (!session) return Fail("open", session.status());
  const auto devices = session->devices();
  if (devices.size() < 2) {
    std::fprintf(stderr, "this example needs a daemon with two devices\n");
    return 1;
  }
  const uint64_t from = devices[0].global_device_id;
  const uint64_t to = devices[1].global_device_id;

  auto source = session->CreateArena(from, 4096);
  if (!source) return Fail("make the source", source.status());
  auto target = session->CreateArena(to, 4096);
  if (!target) return Fail("make the target", target.status());
  const std::string text = "hello from " + std::string(devices[0].name);
  // On a host device source->data() is ordinary memory; this works on GPUs too.
  if (ferry::Status status = source->Write(0, text.data(), text.size()); !status.ok()) {
    return Fail("fill the source", status);
  }

  // The receive first; order does not matter. Each device has an 'over' counter of its own.
  ferry::PostOptions at_target;
  at_target.over_timeline = 1;
  auto receive = session->Receive(
      to, {ferry::Transfer(from, "greeting", {target->Range(0, text.size())})}, at_target);
  if (!receive) return Fail("post the receive", receive.status());
  auto send =
      session->Send(from, {ferry::Transfer(to, "greeting", {source->Range(0, text.size())})});
  if (!send) return Fail("post the send", send.status());

  if (ferry::Status status = receive->Wait(); !status.ok()) return Fail("receive", status);
  if (ferry::Status status = send->Wait(); !status.ok()) return Fail("send", status);
  std::string got(text.size(), '\0');
  if (ferry::Status status = target->Read(0, got.data(), got.size()); !status.ok()) {
    return Fail("read the target", status);
  }
  std::printf("%s got \"%s\"\n", devices[1].name, got.c_str());
  return 0;
}
