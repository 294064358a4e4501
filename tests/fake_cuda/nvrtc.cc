// SPDX-License-Identifier: Apache-2.0
// A fake libnvrtc. Its machine code is the source itself, behind a mark: the fake driver has it
// compiled by the host's compiler when it is loaded. A source with the word FERRY_FAKE_FAILS in it
// does not compile. Neither does one with the number kFailsInFull in it, but of the first tier.
#include <cstddef>
#include <cstring>
#include <string>

#include "machine_code.h"

namespace {

constexpr char kFailsInFull[] = "0xfa11ed11ull";
constexpr char kFirstTier[] = "--define-macro=FERRY_ROLLED";

struct Program {
  std::string source;
  std::string log;
  std::string code;
};

void Give(const std::string& text, char* to) { memcpy(to, text.data(), text.size()); }

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

const char* nvrtcGetErrorString(int result) {
  return result == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION";
}

int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}

int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}

int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  auto& made = *static_cast<Program*>(program);
  bool first = false;
  for (int i = 0; i < count; ++i) first = first || strcmp(options[i], kFirstTier) == 0;
  if (made.source.find("FERRY_FAKE_FAILS") != std::string::npos ||
      (!first && made.source.find(kFailsInFull) != std::string::npos)) {
    made.log = std::string("kernel.cu(1): error: the fake was told to fail\n") + '\0';
    return 6;
  }
  made.log = std::string("ptxas info    : Used 32 registers\n") + '\0';
  made.code = fake_cuda::kMachineCode + made.source + '\0';
  return 0;
}

int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  *bytes = static_cast<Program*>(program)->log.size();
  return 0;
}

int nvrtcGetProgramLog(void* program, char* log) {
  Give(static_cast<Program*>(program)->log, log);
  return 0;
}

int nvrtcGetCUBINSize(void* program, size_t* bytes) {
  *bytes = static_cast<Program*>(program)->code.size();
  return 0;
}

int nvrtcGetCUBIN(void* program, char* cubin) {
  Give(static_cast<Program*>(program)->code, cubin);
  return 0;
}

}  // extern "C"
