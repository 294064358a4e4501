// SPDX-License-Identifier: Apache-2.0
#include "compute/program/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/program/cost.h"
#include "compute/program/problem_list.h"
#include "compute/program/rules.h"

namespace ferry::compute {
namespace {

// Says `text` of the whole program, or of an op, as a limit that is passed.
void TooMany(ProblemList& problems, int64_t op, absl::string_view what, uint64_t count,
             uint64_t most) {
  problems.Add(op, "limits", absl::StrCat(count, " ", what, ", at most ", most),
               Reason::kBatchTooLarge);
}

void CheckBuffers(const Program& program, ProblemList& problems) {
  if (program.buffers.size() > kMaxBuffers) {
    TooMany(problems, -1, "buffers", program.buffers.size(), kMaxBuffers);
  }
  std::set<absl::string_view> names;
  for (const Buffer& buffer : program.buffers) {
    const auto is_name = [](char c) {
      return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '+' || c == '-';
    };
    if (buffer.name.size() > kMaxNameBytes) {
      problems.Add(-1, "buffers",
                   absl::StrCat("the name '", ShownLabel(buffer.name), "' is too long: it has ",
                                buffer.name.size(), " bytes, at most ", kMaxNameBytes));
    } else if (buffer.name.empty() ||
               !std::all_of(buffer.name.begin(), buffer.name.end(), is_name)) {
      problems.Add(-1, "buffers",
                   absl::StrCat("'", absl::CEscape(buffer.name),
                                "' names no buffer: letters, digits, _ . + -"));
    } else if (!names.insert(buffer.name).second) {
      problems.Add(-1, "buffers", absl::StrCat("two buffers are named @", buffer.name));
    }
  }
}

void CheckNodeStructure(const Program& program, OpIndex index, size_t block_end,
                        ProblemList& problems) {
  const Node& node = program.nodes[index];
  const OpInfo& info = InfoOf(node.op);
  const auto bad = [&](std::string text) { problems.Add(index, "structure", std::move(text)); };
  for (const size_t size : {node.operands.size(), node.after.size(), node.yielded.size()}) {
    if (size > kMaxOperands) TooMany(problems, index, "operands", size, kMaxOperands);
  }
  for (const std::vector<ValueId>* values : {&node.operands, &node.yielded}) {
    for (const ValueId value : *values) {
      if (value >= program.types.size()) bad(absl::StrCat("there is no value ", value));
    }
  }
  for (const uint32_t buffer : node.buffers) {
    if (buffer >= program.buffers.size()) bad(absl::StrCat("there is no buffer ", buffer));
  }
  for (const OpIndex other : node.after) {
    if (other >= index) bad(absl::StrCat("op ", other, " of `after` is not above"));
  }
  if (node.results != info.ResultsFor(node.operands.size())) {
    bad(absl::StrCat(info.name, " has ", info.ResultsFor(node.operands.size()),
                     " results here, not ", node.results));
  }
  if (node.buffers.size() != info.buffers) {
    bad(absl::StrCat(info.name, " names ", info.buffers, " buffers, not ", node.buffers.size()));
  }
  for (const auto& [attribute, value] : node.attributes.entries()) {
    if (((info.must | info.may) & Bit(attribute)) == 0) {
      bad(absl::StrCat(info.name, " has no ", InfoOf(attribute).name));
    } else if (std::string wrong = ProblemOf(attribute, value); !wrong.empty()) {
      bad(std::move(wrong));
    }
  }
  if (node.label.size() > kMaxNameBytes) {
    TooMany(problems, index, "bytes of label", node.label.size(), kMaxNameBytes);
  }
  if (node.op != Op::kRepeat && (node.body != 0 || !node.yielded.empty())) {
    bad("only a repeat has a body");
  }
  if (node.body > block_end - index - 1) bad("its body is longer than what it is in");
}

class Verifier {
 public:
  Verifier(const Program& program, UnclearOps unclear, const Limits& limits)
      : program_(program),
        limits_(limits),
        unclear_(std::move(unclear)),
        problems_(program),
        parents_(ParentsOf(program)),
        definitions_(DefinitionsOf(program)),
        ordered_(OrderedOps(program)) {}

  std::vector<Problem> Run() {
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.donated && buffer.access == Access::kWrite) {
        problems_.Add(-1, "donation", absl::StrCat("@", buffer.name, " is donated and never read"));
      }
      if (buffer.constant && (buffer.donated || buffer.access != Access::kRead)) {
        problems_.Add(-1, "constant",
                      absl::StrCat("@", buffer.name,
                                   " is constant and may be written: declare it "
                                   "read, and not donated"));
      }
    }
    for (OpIndex i = 0; i < program_.nodes.size() && !problems_.full(); ++i) {
      if (unclear_[i]) continue;
      const size_t before = problems_.size();
      CheckOp(i);
      // What is bad by itself would only be bad once more.
      if (problems_.size() > before) unclear_[i] = true;
    }
    CheckOrder(program_, unclear_, problems_);
    CheckWritten(program_, unclear_, problems_);
    // Of what is bad it would be anything.
    const bool clear = std::none_of(unclear_.begin(), unclear_.end(), [](bool one) { return one; });
    if (problems_.empty() && clear) CheckCost();
    return problems_.Take();
  }

 private:
  void CheckOp(OpIndex index) {
    const Node& node = program_.nodes[index];
    for (const ValueId value : node.operands) {
      if (!IsVisible(value, index)) {
        problems_.Add(index, "scope", absl::StrCat("%", value, " is not defined above it"));
        return;
      }
    }
    const Inference inference = Infer(program_, node, program_.ResultTypes(node));
    if (!inference.ok()) {
      problems_.Add(index, inference.rule, inference.text,
                    inference.rule == "bounds" ? Reason::kRangeInvalid : Reason::kFieldInvalid);
      return;
    }
    for (const OpIndex other : node.after) {
      if (parents_[other] != parents_[index]) {
        problems_.Add(index, "after",
                      absl::StrCat("op ", other, " is in another body: say it of the repeats"));
      }
    }
    CheckRanges(index);
    if (node.op == Op::kSend || node.op == Op::kRecv) CheckKey(index);
    if (node.op == Op::kRepeat) CheckBody(index);
  }

  // Is `value` defined above where `index` stands, in a block around it?
  bool IsVisible(ValueId value, int64_t index) const {
    const OpIndex definition = definitions_[value];
    const Node& node = program_.nodes[definition];
    if (static_cast<int64_t>(definition) >= index) return false;
    const bool inside = index <= static_cast<int64_t>(definition) + node.body;
    if (value >= node.first_parameter()) return inside;
    if (inside) return false;  // a result, of the repeat whose body this is
    for (int64_t at = parents_[index];; at = parents_[at]) {
      if (parents_[definition] == at) return true;
      if (at < 0) return false;
    }
  }

  void CheckBody(OpIndex index) {
    const Node& node = program_.nodes[index];
    if (node.yielded.size() != node.operands.size()) {
      problems_.Add(
          index, "yield",
          absl::StrCat("yields ", node.yielded.size(), " values, carries ", node.operands.size()));
      return;
    }
    for (size_t i = 0; i < node.yielded.size(); ++i) {
      const TensorType& yielded = program_.types[node.yielded[i]];
      const TensorType& carried = program_.types[node.operands[i]];
      if (!IsYielded(node.yielded[i], index)) {
        problems_.Add(index, "scope",
                      absl::StrCat("%", node.yielded[i], " is not defined where it is yielded"));
      } else if (yielded != carried) {
        problems_.Add(index, "yield",
                      absl::StrCat("value ", i, " is carried as ", ToString(carried),
                                   " and yielded as ", ToString(yielded)));
      }
    }
  }

  // Is `value` visible at the end of the body of `repeat`?
  bool IsYielded(ValueId value, OpIndex repeat) const {
    const OpIndex definition = definitions_[value];
    if (definition == repeat) return value >= program_.nodes[repeat].first_parameter();
    if (definition < repeat) return IsVisible(value, repeat);
    return parents_[definition] == static_cast<int64_t>(repeat) &&
           value < program_.nodes[definition].first_parameter();
  }

  void CheckRanges(OpIndex index) {
    const std::vector<BufferRange> ranges = RangesOf(program_, program_.nodes[index]);
    for (const BufferRange& range : ranges) {
      const Buffer& buffer = program_.buffers[range.buffer];
      if (range.end > buffer.bytes) {
        problems_.Add(index, "bounds",
                      absl::StrCat("bytes ", range.begin, " to ", range.end, " of @", buffer.name,
                                   ", which has ", buffer.bytes),
                      Reason::kRangeInvalid);
      }
      if ((range.reads && buffer.access == Access::kWrite) ||
          (range.writes && buffer.access == Access::kRead)) {
        problems_.Add(
            index, "access",
            absl::StrCat(range.writes ? "writes" : "reads", " @", buffer.name,
                         ", which is declared ", kAccessNames[static_cast<size_t>(buffer.access)]));
      }
    }
    if (ranges.size() == 2 && ranges[0].buffer == ranges[1].buffer &&
        std::max(ranges[0].begin, ranges[1].begin) < std::min(ranges[0].end, ranges[1].end)) {
      problems_.Add(index, "overlap", "copies a range over itself", Reason::kRangeOverlap);
    }
  }

  // A key is used once: each side of a transfer is matched once.
  void CheckKey(OpIndex index) {
    const Node& node = program_.nodes[index];
    if (parents_[index] >= 0) {
      problems_.Add(index, "key", "a transfer is no part of a repeat: its key is used once");
      return;
    }
    if (node.attributes.Has(Attribute::kDevice) == node.attributes.Has(Attribute::kPeer)) {
      problems_.Add(
          index, "attributes",
          "the other end is a `device`, or a `peer` that a run gives one: either of them");
      return;
    }
    const std::string key(node.attributes.Bytes(Attribute::kKey));
    const int64_t parts = node.attributes.Int(Attribute::kParts);
    if (parts == 0) return AddKey(index, key);
    if (!CheckParts(index, parts)) return;
    for (int64_t part = 0; part < parts; ++part) AddKey(index, absl::StrCat(key, "/", part));
  }

  void AddKey(OpIndex index, const std::string& key) {
    const Node& node = program_.nodes[index];
    const std::string peer(node.attributes.Bytes(Attribute::kPeer));
    const auto [other, fresh] =
        keys_.try_emplace({node.op, node.attributes.Int(Attribute::kDevice), peer, key}, index);
    if (!fresh) {
      problems_.Add(index, "key",
                    absl::StrCat("op ", other->second, " has the key '", absl::CEscape(key),
                                 "' of the same ", peer.empty() ? "device" : "peer", " too"));
    }
  }

  // Can op `index`, a transfer, be done in `parts` parts?
  bool CheckParts(OpIndex index, int64_t parts) {
    const Node& node = program_.nodes[index];
    const TensorType& type =
        program_.types[node.op == Op::kSend ? node.operands[0] : node.first_result];
    const size_t most = static_cast<size_t>(kMaxKeyBytes) - absl::StrCat("/", parts - 1).size();
    const auto wrong = [&](absl::string_view text) {
      problems_.Add(index, "parts", std::string(text));
      return false;
    };
    if (type.dims.empty() || type.dims[0] < parts) {
      return wrong(absl::StrCat(ToString(type), " has no ", parts, " rows along dimension 0"));
    }
    if (node.attributes.Bytes(Attribute::kKey).size() > most) {
      return wrong(absl::StrCat("the keys of ", parts,
                                " parts have the number of the part behind '",
                                "key', which has at most ", most, " bytes then"));
    }
    if (ordered_[index]) {
      return wrong("a transfer in parts has no `after`, and no other op is `after` it");
    }
    parts_ += static_cast<uint64_t>(parts);
    if (program_.nodes.size() + 2 * parts_ > kMaxOps) {
      return wrong(
          absl::StrCat("each part counts as two ops, of which a program has at most ", kMaxOps));
    }
    return true;
  }

  void CheckCost() {
    const Cost cost = CostOf(program_);
    const auto check = [&](absl::string_view what, uint64_t value, uint64_t most) {
      if (value > most) TooMany(problems_, -1, what, value, most);
    };
    check("floating point operations", SaturatingAdd(cost.flops, cost.transcendentals),
          limits_.flops);
    check("bytes of traffic",
          SaturatingAdd(SaturatingAdd(cost.bytes_read, cost.bytes_written),
                        SaturatingAdd(cost.bytes_sent, cost.bytes_received)),
          limits_.traffic);
    check("steps", cost.steps, limits_.steps);
  }

  const Program& program_;
  const Limits& limits_;
  UnclearOps unclear_;
  ProblemList problems_;
  const std::vector<int64_t> parents_;
  const std::vector<OpIndex> definitions_;
  std::map<std::tuple<Op, int64_t, std::string, std::string>, OpIndex> keys_;
  const std::vector<bool> ordered_;  // OrderedOps
  uint64_t parts_ = 0;               // of the transfers so far
};

}  // namespace

std::string ToString(const Program& program, const Problem& problem) {
  std::string where;
  if (problem.op >= 0) {
    absl::StrAppend(&where, "op ", problem.op, " ", InfoOf(program.nodes[problem.op].op).name);
    if (!problem.label.empty()) absl::StrAppend(&where, " '", ShownLabel(problem.label), "'");
    absl::StrAppend(&where, ": ");
  }
  return absl::StrCat(where, problem.rule, ": ", problem.text);
}

std::vector<Problem> CheckStructure(const Program& program, const std::vector<bool>& unclear) {
  ProblemList problems(program);
  if (program.nodes.size() > kMaxOps) {
    TooMany(problems, -1, "ops", program.nodes.size(), kMaxOps);
    return problems.Take();
  }
  CheckBuffers(program, problems);
  uint64_t values = 0;
  std::vector<size_t> ends = {program.nodes.size()};  // of the blocks around
  for (OpIndex i = 0; i < program.nodes.size() && !problems.full(); ++i) {
    while (ends.size() > 1 && ends.back() == i) ends.pop_back();
    const Node& node = program.nodes[i];
    if (node.first_result != values) problems.Add(i, "structure", "its values are misnumbered");
    values += node.results + node.parameters();
    if (i >= unclear.size() || !unclear[i]) {
      CheckNodeStructure(program, i, ends.back(), problems);
    }
    if (!problems.empty() || node.op != Op::kRepeat) continue;
    ends.push_back(i + 1 + node.body);
    if (ends.size() > kMaxNesting + 1) {
      TooMany(problems, i, "repeats within each other", ends.size() - 1, kMaxNesting);
    }
  }
  if (problems.empty() && values != program.types.size()) {
    problems.Add(-1, "structure",
                 absl::StrCat(program.types.size(), " values, ", values, " are defined"));
  }
  return problems.Take();
}

std::vector<Problem> Verify(const Program& program, const Limits& limits) {
  std::vector<Problem> problems = CheckStructure(program);
  if (!problems.empty()) return problems;
  return VerifyRest(program, UnclearOps(program.nodes.size()), limits);
}

std::vector<Problem> VerifyRest(const Program& program, std::vector<bool> unclear,
                                const Limits& limits) {
  return Verifier(program, std::move(unclear), limits).Run();
}

std::string ShownLabel(absl::string_view label) {
  return absl::StrCat(absl::CEscape(label.substr(0, kMaxNameBytes)),
                      label.size() > kMaxNameBytes ? "..." : "");
}

std::string ProblemsText(size_t problems) {
  return absl::StrCat(problems, problems >= kMaxProblems ? " or more problems, the first of them"
                                : problems == 1          ? " problem"
                                                         : " problems");
}

absl::Status ToStatus(const Program& program, const std::vector<Problem>& problems) {
  if (problems.empty()) return absl::OkStatus();
  Reason reason = problems[0].reason;
  std::string text = problems.size() == 1
                         ? "verify the program"
                         : absl::StrCat("verify the program: ", ProblemsText(problems.size()));
  const char* separator = ": ";
  for (const Problem& problem : problems) {
    if (problem.reason != reason) reason = Reason::kFieldInvalid;
    absl::StrAppend(&text, separator, ToString(program, problem));
    separator = "; ";
  }
  return Error(absl::StatusCode::kInvalidArgument, reason, text);
}

}  // namespace ferry::compute
