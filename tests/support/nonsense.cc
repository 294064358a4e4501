// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nonsense.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

uint64_t Nonsense::Number() {
  switch (Below(8)) {
    case 0:
      return 0;
    case 1:
    case 2:
    case 3:
      return Below(8);
    case 4:
      return Below(5000);
    case 5:
      return (uint64_t{1} << Below(64)) - Below(3);
    case 6:
      return UINT64_MAX - Below(4);
    default:
      return random_();
  }
}

std::string Nonsense::Bytes(size_t most) {
  std::string bytes(Below(most + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random_());
  return bytes;
}

std::string Nonsense::Text() {
  switch (Below(8)) {
    case 0:
      return "";
    case 1:
      return std::string(Below(300), 'x');
    case 2:
      return "node-a";
    case 3:
      return "uid:0";
    case 4:
      return "a\nb\t\x7f";
    default:
      return absl::StrCat("k", Below(8));
  }
}

void Nonsense::Fill(Message& message, int depth) {
  constexpr int kDeepest = 4;
  const Reflection& of = *message.GetReflection();
  const auto* const type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (!Chance(60) || field->is_map()) continue;
    const bool list = field->is_repeated();
    const bool nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (nested && depth == kDeepest) continue;
    const uint64_t count = !list ? 1 : Chance(3) ? Below(nested ? 100 : 5000) : Below(4);
    for (uint64_t n = 0; n < count; ++n) {
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_MESSAGE:
          Fill(list ? *of.AddMessage(&message, field) : *of.MutableMessage(&message, field),
               depth + 1);
          break;
        case FieldDescriptor::CPPTYPE_STRING: {
          const bool raw = field->type() == FieldDescriptor::TYPE_BYTES && Chance(50);
          std::string text = raw ? Bytes(80) : Text();
          list ? of.AddString(&message, field, std::move(text))
               : of.SetString(&message, field, std::move(text));
          break;
        }
        case FieldDescriptor::CPPTYPE_ENUM: {
          const int value = Chance(90) ? static_cast<int>(Below(6)) : static_cast<int>(Number());
          list ? of.AddEnumValue(&message, field, value) : of.SetEnumValue(&message, field, value);
          break;
        }
        case FieldDescriptor::CPPTYPE_BOOL:
          list ? of.AddBool(&message, field, Chance(50)) : of.SetBool(&message, field, Chance(50));
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          list ? of.AddUInt64(&message, field, Number()) : of.SetUInt64(&message, field, Number());
          break;
        case FieldDescriptor::CPPTYPE_UINT32: {
          const auto value = static_cast<uint32_t>(Number());
          list ? of.AddUInt32(&message, field, value) : of.SetUInt32(&message, field, value);
          break;
        }
        case FieldDescriptor::CPPTYPE_INT64: {
          const auto value = static_cast<int64_t>(Number());
          list ? of.AddInt64(&message, field, value) : of.SetInt64(&message, field, value);
          break;
        }
        case FieldDescriptor::CPPTYPE_INT32: {
          const auto value = static_cast<int32_t>(Number());
          list ? of.AddInt32(&message, field, value) : of.SetInt32(&message, field, value);
          break;
        }
        default:  // no message here has any other
          break;
      }
    }
  }
}

std::string Nonsense::Broken(std::string bytes) {
  if (bytes.empty()) return Bytes(40);
  switch (Below(3)) {
    case 0:
      bytes.resize(Below(bytes.size()));
      break;
    case 1:
      bytes[Below(bytes.size())] = static_cast<char>(random_());
      break;
    default:
      bytes += Bytes(40);
  }
  return bytes;
}

// For a second, or until there are so many later ones.
UniqueFd Nonsense::Lingering() {
  constexpr size_t kMost = 16;
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), to, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), to, &size) != 0 || connect(fd.get(), to, size) != 0) {
    return UniqueFd();
  }
  unread_.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (unread_.size() > kMost) unread_.pop_front();
  const std::string bytes(1 << 16, 'x');
  while (send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  const linger wait{1, 1};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
  return fd;
}

UniqueFd Nonsense::Descriptor() {
  if (lingers_ && Chance(10)) return Lingering();
  switch (Below(7)) {
    case 0:
      return MakeMemfd(4096 * (1 + Below(4)), ArenaSeals());
    case 1:
      return MakeMemfd(Below(10000), Chance(50) ? F_SEAL_SEAL : 0);
    case 2:
      return UniqueFd(eventfd(static_cast<unsigned>(Below(2)), EFD_CLOEXEC));
    case 3: {
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) return UniqueFd();
      const UniqueFd reading(ends[0]);
      return UniqueFd(ends[1]);
    }
    case 4:
      return UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
    case 5:
      return UniqueFd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    default:
      return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
}

}  // namespace ferry::testing
