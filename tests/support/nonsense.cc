// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nonsense.h"

#include <fcntl.h>
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

UniqueFd Nonsense::Descriptor() {
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
