// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/kernel_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ferry::compute {

std::string CppType(DType type) {
  const absl::string_view name = NameOf(type);
  return std::string(name);
}

std::string FunctionOf(absl::string_view name) {
  std::string function;
  for (const absl::string_view word : absl::StrSplit(name, '_')) {
    function += absl::ascii_toupper(static_cast<unsigned char>(word[0]));
    absl::StrAppend(&function, word.substr(1));
  }
  return function;
}

std::string CodeText(DType type, uint64_t code) {
  if (type == DType::kBool) return code != 0 ? "true" : "false";
  return absl::StrCat("FromCode<", CppType(type), ">(0x", absl::Hex(code), "ull)");
}

std::string CountText(bool all, absl::string_view index, absl::string_view end) {
  if (all) return "[[maybe_unused]] constexpr int count = V;";
  return absl::StrCat("const int count = CountOf<V>(", index, ", ", end, ");");
}

View Collapsed(const View& view) {
  View made{view.offset, {}, {}};
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (view.dims[d] == 1) continue;
    if (!made.dims.empty() && made.strides.back() == view.strides[d] * view.dims[d]) {
      made.dims.back() *= view.dims[d];
      made.strides.back() = view.strides[d];
    } else {
      made.dims.push_back(view.dims[d]);
      made.strides.push_back(view.strides[d]);
    }
  }
  return made;
}

void LoopBody::AddEach(std::string declaration, std::string statement) {
  constexpr absl::string_view kEach = "FERRY_EACH ";
  const bool joins = each_end_ != 0 && each_end_ == lines_.size();
  if (!joins) each_begin_ = lines_.size();
  if (!declaration.empty()) {
    lines_.insert(lines_.begin() + static_cast<ptrdiff_t>(each_begin_), std::move(declaration));
    ++each_begin_;
  }
  if (!joins) {
    Add(absl::StrCat(kEach, statement));
  } else if (lines_.back() == "}") {
    lines_.insert(lines_.end() - 1, std::move(statement));
  } else {  // a loop of one statement becomes one of two
    std::string first(absl::StripPrefix(lines_.back(), kEach));
    lines_.back() = absl::StrCat(kEach, "{");
    for (std::string* line : {&first, &statement}) Add(std::move(*line));
    Add("}");
  }
  each_end_ = lines_.size();
}

std::string KernelText::Pointer(bool written, KernelArgument::Kind kind, uint32_t index,
                                int64_t offset) {
  std::string name = absl::StrCat("p", pointers_++);
  absl::StrAppend(&parameters_, written ? ", Byte* " : ", const Byte* ", name);
  arguments_.push_back({kind, index, offset, 8});
  return name;
}

std::string KernelText::Number(int64_t value) {
  if (baked_) return absl::StrCat("static_cast<Index>(", value, "ll)");
  std::string name = absl::StrCat("n", numbers_++);
  absl::StrAppend(&parameters_, ", Index ", name);
  arguments_.push_back({KernelArgument::Kind::kNumber, 0, value, wide_ ? 8u : 4u});
  return name;
}

std::string KernelText::Place(const View& all, const std::string& index, bool with_offset) {
  const View view = Collapsed(all);
  const auto stride = [&](size_t d) {
    const int64_t value = view.strides[d];
    return value == 0 || value == 1 ? absl::StrCat(value) : Number(value);
  };
  std::string place;
  if (view.dims.empty()) {
    place = "0";
  } else if (view.dims.size() == 1) {
    const std::string by = stride(0);
    place = by == "1" ? index : by == "0" ? "0" : absl::StrCat("(", index, ") * ", by);
  } else {
    place = absl::StrCat("Place<Index>(", index);
    for (size_t d = view.dims.size(); d-- > 0;) {
      if (d > 0) absl::StrAppend(&place, ", ", Number(view.dims[d]));
      absl::StrAppend(&place, ", ", stride(d));
    }
    place += ")";
  }
  if (with_offset && view.offset != 0) place = absl::StrCat(Number(view.offset), " + ", place);
  return place;
}

KernelLaunch KernelText::Finish(uint64_t blocks, uint32_t threads) {
  KernelLaunch launch;
  launch.blocks = blocks;
  launch.threads = threads;
  launch.busy = blocks * threads;
  launch.arguments = std::move(arguments_);
  std::string& text = launch.source;
  text = "#include \"ferry.cuh\"\n\n";
  for (const std::string& line : globals_) absl::StrAppend(&text, line, "\n");
  absl::StrAppend(&text, "extern \"C\" __global__ void __launch_bounds__(", threads, ")\n",
                  kEntryPlace, "(u64* begun, u64 run",
                  absl::StrReplaceAll(parameters_, {{"Index ", wide_ ? "i64 " : "i32 "}}),
                  ") {\n  using Index = ", wide_ ? "i64" : "i32", ";\n  Begin(begun, run);\n");
  int indent = 1;
  for (const std::string& line : lines_) {
    if (line[0] == '}') --indent;
    absl::StrAppend(&text, std::string(static_cast<size_t>(2 * indent), ' '), line, "\n");
    if (line.back() == '{') ++indent;
  }
  text += "}\n";
  return launch;
}

}  // namespace ferry::compute
