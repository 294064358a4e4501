// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/make_checkpoint.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/duration.h"
#include "base/status.h"
#include "tools/ferryctl/file_io.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

constexpr uint64_t kElementBytes = 2;  // BF16

struct Width {
  int64_t hidden, key_value, intermediate, vocabulary;
};
constexpr Width kWide = {2048, 512, 8192, 32768};
constexpr Width kNarrow = {256, 64, 1024, 4096};
constexpr uint64_t kWideFrom = uint64_t{512} << 20;

// xoshiro256**: a gigabyte in under a second, which no library generator does.
class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {  // splitmix64
      seed += 0x9e3779b97f4a7c15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      word = z ^ (z >> 31);
    }
  }
  uint64_t Next() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

 private:
  static uint64_t Rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

uint64_t BytesOf(const CheckpointTensor& tensor) {
  uint64_t bytes = kElementBytes;
  for (int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
  return bytes;
}

void AddLayer(std::vector<CheckpointTensor>& tensors, const Width& w, int layer) {
  const std::string at = absl::StrCat("model.layers.", layer, ".");
  tensors.push_back({at + "input_layernorm.weight", {w.hidden}});
  tensors.push_back({at + "mlp.down_proj.weight", {w.hidden, w.intermediate}});
  tensors.push_back({at + "mlp.gate_proj.weight", {w.intermediate, w.hidden}});
  tensors.push_back({at + "mlp.up_proj.weight", {w.intermediate, w.hidden}});
  tensors.push_back({at + "post_attention_layernorm.weight", {w.hidden}});
  tensors.push_back({at + "self_attn.k_proj.weight", {w.key_value, w.hidden}});
  tensors.push_back({at + "self_attn.o_proj.weight", {w.hidden, w.hidden}});
  tensors.push_back({at + "self_attn.q_proj.weight", {w.hidden, w.hidden}});
  tensors.push_back({at + "self_attn.v_proj.weight", {w.key_value, w.hidden}});
}

uint64_t TotalOf(const std::vector<CheckpointTensor>& tensors) {
  uint64_t total = 0;
  for (const CheckpointTensor& tensor : tensors) total += BytesOf(tensor);
  return total;
}

std::string HeaderOf(const std::vector<CheckpointTensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t at = 0;
  for (const CheckpointTensor& tensor : tensors) {
    const uint64_t bytes = BytesOf(tensor);
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

class MakeCheckpointCommand : public Command {
 public:
  MakeCheckpointCommand()
      : Command("make-checkpoint", "Write a Llama-shaped BF16 .safetensors file of random data") {}
  void Define(CLI::App& app) override {
    app.add_option("file", file_, "Where")->required();
    AddParsed(app, "--size", size_, ParseSize, "About how large (1 GB)");
    app.add_option("--seed", seed_, "Of the random data (1)");
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    const absl::Time start = absl::Now();
    const std::vector<CheckpointTensor> tensors = LlamaTensors(size_);
    ASSIGN_OR_RETURN(uint64_t bytes, WriteCheckpoint(file_, tensors, seed_));
    const absl::Duration elapsed = absl::Now() - start;
    if (globals.json) {
      const nlohmann::ordered_json result = {{"file", file_},
                                             {"tensors", tensors.size()},
                                             {"bytes", bytes},
                                             {"seconds", absl::ToDoubleSeconds(elapsed)}};
      std::printf("%s\n", result.dump().c_str());
    } else {
      std::printf("%s: %zu tensors, %s, %s\n", file_.c_str(), tensors.size(),
                  HumanSize(bytes).c_str(), DurationText(elapsed).c_str());
    }
    return kExitOk;
  }

 private:
  std::string file_;
  uint64_t size_ = 1'000'000'000;
  uint64_t seed_ = 1;
};

}  // namespace

std::vector<CheckpointTensor> LlamaTensors(uint64_t bytes) {
  const Width& width = bytes >= kWideFrom ? kWide : kNarrow;
  std::vector<CheckpointTensor> tensors;
  tensors.push_back({"model.embed_tokens.weight", {width.vocabulary, width.hidden}});
  const uint64_t fixed = TotalOf(tensors);
  std::vector<CheckpointTensor> layer;
  AddLayer(layer, width, 0);
  const uint64_t each = TotalOf(layer);
  const uint64_t layers =
      bytes > fixed ? std::max<uint64_t>(1, (bytes - fixed + each / 2) / each) : 1;
  for (uint64_t i = 0; i < layers; ++i) AddLayer(tensors, width, static_cast<int>(i));
  tensors.push_back({"model.norm.weight", {width.hidden}});
  return tensors;
}

absl::StatusOr<uint64_t> WriteCheckpoint(const std::string& path,
                                         const std::vector<CheckpointTensor>& tensors,
                                         uint64_t seed) {
  const std::string header = HeaderOf(tensors);
  std::string start;
  for (int i = 0; i < 8; ++i) start.push_back(static_cast<char>(header.size() >> (8 * i)));
  start += header;
  const uint64_t data = TotalOf(tensors);
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  RETURN_IF_ERROR(file.Reserve(start.size() + data));
  RETURN_IF_ERROR(file.Write(0, start.data(), start.size()));
  Random random(seed);
  std::vector<uint64_t> chunk(std::size_t{1} << 20);
  for (uint64_t at = 0; at < data;) {
    for (uint64_t& word : chunk) word = random.Next();
    const uint64_t size = std::min<uint64_t>(chunk.size() * sizeof(uint64_t), data - at);
    RETURN_IF_ERROR(file.Write(start.size() + at, chunk.data(), size));
    at += size;
  }
  RETURN_IF_ERROR(file.Commit());
  return start.size() + data;
}

void AddMakeCheckpointCommand(CommandList& commands) {
  commands.push_back(std::make_unique<MakeCheckpointCommand>());
}

}  // namespace ferry::tools
