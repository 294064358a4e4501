// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/compile_wire.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry::compute {
namespace {

absl::Status Broken(absl::string_view what) {
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat("hear from ferry-compile: ", what));
}

void Put(uint64_t number, std::string& text) {
  for (int shift = 0; shift < 64; shift += 8) text.push_back(static_cast<char>(number >> shift));
}
void Put(absl::string_view part, std::string& text) {
  Put(part.size(), text);
  text.append(part.data(), part.size());
}

uint64_t NumberOf(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) {
    number |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return number;
}

// Takes parts of a payload, one after the other; what is not there is none.
class Parts {
 public:
  explicit Parts(absl::string_view payload) : left_(payload) {}
  uint64_t Number() {
    if (left_.size() < 8) {
      good_ = false;
      return 0;
    }
    const uint64_t number = NumberOf(left_);
    left_.remove_prefix(8);
    return number;
  }
  std::string Text() {
    const uint64_t size = Number();
    if (!good_ || size > left_.size()) {
      good_ = false;
      return "";
    }
    std::string text(left_.substr(0, size));
    left_.remove_prefix(size);
    return text;
  }
  // Everything was there, and nothing else.
  bool Good() const { return good_ && left_.empty(); }

 private:
  absl::string_view left_;
  bool good_ = true;
};

// A status that is not OK: its code, and its text. Its reason is what the code stands for here.
void PutFailure(const absl::Status& status, std::string& text) {
  Put(static_cast<uint64_t>(status.code()), text);
  Put(status.message(), text);
}
absl::Status FailureFrom(Parts& parts) {
  const uint64_t code = parts.Number();
  const std::string text = parts.Text();
  if (!parts.Good()) return Broken("a failure that is cut off");
  return code == static_cast<uint64_t>(absl::StatusCode::kUnavailable)
             ? Error(absl::StatusCode::kUnavailable, Reason::kNotReady, text)
             : Error(absl::StatusCode::kInternal, Reason::kInternal, text);
}

constexpr uint64_t kGood = 1;

}  // namespace

std::string Framed(absl::string_view payload) {
  std::string frame;
  Put(payload, frame);
  return frame;
}

absl::StatusOr<uint64_t> PayloadOf(absl::string_view header) {
  const uint64_t bytes = NumberOf(header);
  if (bytes > kMostFrame) return Broken("a frame that is too long");
  return bytes;
}

std::string Encode(const CompileRequest& request) {
  std::string payload;
  Put(request.arch, payload);
  Put(request.source, payload);
  Put(static_cast<uint64_t>(request.tier), payload);
  return payload;
}

absl::StatusOr<CompileRequest> DecodeRequest(absl::string_view payload) {
  Parts parts(payload);
  CompileRequest request;
  request.arch = parts.Text();
  request.source = parts.Text();
  const uint64_t tier = parts.Number();
  if (!parts.Good() || tier > static_cast<uint64_t>(Tier::kFirst)) {
    return Broken("a request that is cut off");
  }
  request.tier = static_cast<Tier>(tier);
  return request;
}

std::string EncodeGreeting(const absl::StatusOr<std::string>& version) {
  std::string payload;
  Put(uint64_t{version.ok() ? kGood : 0}, payload);
  if (version.ok()) {
    Put(*version, payload);
  } else {
    PutFailure(version.status(), payload);
  }
  return payload;
}

absl::StatusOr<std::string> DecodeGreeting(absl::string_view payload) {
  Parts parts(payload);
  if (parts.Number() != kGood) return FailureFrom(parts);
  std::string version = parts.Text();
  if (!parts.Good() || version.empty()) return Broken("a greeting that is cut off");
  return version;
}

std::string EncodeAnswer(const absl::StatusOr<CompiledKernel>& kernel) {
  std::string payload;
  Put(uint64_t{kernel.ok() ? kGood : 0}, payload);
  if (!kernel.ok()) {
    PutFailure(kernel.status(), payload);
    return payload;
  }
  Put(static_cast<uint64_t>(kernel->registers), payload);
  Put(static_cast<uint64_t>(kernel->spilled), payload);
  Put(kernel->log, payload);
  Put(kernel->cubin, payload);
  return payload;
}

absl::StatusOr<CompiledKernel> DecodeAnswer(absl::string_view payload) {
  Parts parts(payload);
  if (parts.Number() != kGood) return FailureFrom(parts);
  CompiledKernel kernel;
  const uint64_t registers = parts.Number();
  const uint64_t spilled = parts.Number();
  kernel.log = parts.Text();
  kernel.cubin = parts.Text();
  if (!parts.Good() || kernel.cubin.empty() || registers > 1024 || spilled > (1 << 20)) {
    return Broken("an answer that is none");
  }
  kernel.registers = static_cast<int>(registers);
  kernel.spilled = static_cast<int>(spilled);
  return kernel;
}

}  // namespace ferry::compute
