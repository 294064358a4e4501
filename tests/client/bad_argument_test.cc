// SPDX-License-Identifier: Apache-2.0
// What is wrong with the arguments of a call is told in the words of ferry.h, whoever finds it.
#include <string>
#include <vector>

#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using BadArgumentTest = ClientTest;

TEST_F(BadArgumentTest, ErrorsNameTheFieldsOfTheCall) {
  Session session = Open();
  daemon_->set_refusal("nothing was posted; buffers[1].ranges[2]: bad",
                       {{"buffers[1].ranges[2]", "writes what buffers[0].strided writes too"},
                        {"transfer_keys[0]", "is too long"},
                        {"buffers[3].deadline", "x[0] is negative"},
                        {"options.deadline", "as well"},
                        {"buffers", "and others"},
                        {"domain", "a domain is not that wide"},
                        {"device_id", "unknown"}});
  const auto fields = [](const Status& status) {
    std::vector<std::string> all;
    for (const Status::Violation& violation : status.violations()) {
      all.push_back(std::string(violation.field) + ": " + std::string(violation.text));
    }
    return all;
  };
  const Result<Batch> sent = session.Send(0, {Keyed("bad")});
  EXPECT_EQ(sent.status().message(), "nothing was posted; sends[1].ranges[2]: bad");
  EXPECT_THAT(fields(sent.status()),
              ElementsAre("sends[1].ranges[2]: writes what sends[0].strided writes too",
                          "sends[0].key: is too long", "sends[3].deadline_ns: x[0] is negative",
                          "options.deadline_ns: as well", "sends: and others",
                          "options.domain: a domain is not that wide", "device: unknown"));
  const Result<Batch> received = session.Receive(0, {Keyed("bad")});
  EXPECT_EQ(received.status().message(), "nothing was posted; receives[1].ranges[2]: bad");
  daemon_->set_refusal("nothing was posted; domain: too wide", {{"domain", "too wide"}});
  EXPECT_EQ(session.Send(0, {Keyed("bad")}).status().message(),
            "nothing was posted; options.domain: too wide");
}

TEST_F(BadArgumentTest, AListWithoutItsCountIsRefused) {
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  const ferry_range range = arena->All();
  const uint64_t index = 0;
  const ferry_block_table table{arena->get(), 0, 8, &index, 0};
  ferry_transfer halves[2] = {};
  halves[0].ranges = &range;
  halves[0].key = "echo";
  halves[0].key_bytes = 4;
  halves[1] = halves[0];
  halves[1].range_count = 1;
  halves[1].blocks = &table;
  ferry_post_options options{};
  options.struct_size = sizeof(options);
  options.domain = "job";
  options.request_id = "id";
  ferry_batch* raw = nullptr;
  Status refused(ferry_cross_host_send(session.get(), 0, halves, 2, &options, &raw));
  EXPECT_EQ(refused.reason(), "FIELD_INVALID");
  std::vector<std::string> fields;
  for (const Status::Violation& violation : refused.violations()) {
    fields.emplace_back(violation.field);
  }
  EXPECT_THAT(fields, ElementsAre("options.domain_bytes", "options.request_id_bytes",
                                  "sends[0].range_count", "sends[1].blocks.index_count"));
  EXPECT_EQ(refused.violations()[2].text, "is 0, but ranges is given");
  // The wrapper's empty lists are none, wherever they point to.
  PostOptions none;
  none.domain.reserve(100);
  Transfer empty = Keyed("echo");
  empty.ranges.reserve(4);
  ASSERT_OK(session.Send(0, {empty}, none));
}

// Else it would be a member of another domain than the one that it named, the uid's.
TEST_F(BadArgumentTest, ADomainWithoutItsLengthIsNotJoined) {
  Session session = Open();
  const Status refused(ferry_domain_join(session.get(), "job", 0, 0, "trainer-0"));
  EXPECT_EQ(refused.reason(), "FIELD_INVALID");
  ASSERT_EQ(refused.violations().size(), 1u);
  EXPECT_EQ(refused.violations()[0].field, "domain_bytes");
  EXPECT_EQ(refused.violations()[0].text, "is 0, but domain is given");
  ASSERT_OK(session.JoinDomain("", 0, "trainer-0"));
}

TEST_F(BadArgumentTest, OptionsOfAnotherSizeAreTakenOrToldApart) {
  struct {
    ferry_post_options known;
    uint64_t newer;
  } options = {};
  Session session = Open();
  ferry_transfer echo{};
  echo.key = "echo";
  echo.key_bytes = 4;
  ferry_batch* raw = nullptr;
  const auto post = [&](size_t size) {
    options.known.struct_size = size;
    Status status(ferry_cross_host_send(session.get(), 0, &echo, 1, &options.known, &raw));
    if (status.ok()) ferry_batch_free(raw);
    return status;
  };
  const std::string size = std::to_string(sizeof(ferry_post_options));
  for (const size_t none : {size_t{0}, size_t{7}, size_t{5000}, SIZE_MAX}) {
    const Status status = post(none);
    EXPECT_EQ(status.reason(), "FIELD_INVALID");
    EXPECT_EQ(status.message(), "ferry_post_options.struct_size is " + std::to_string(none) +
                                    ": it must be sizeof(ferry_post_options), which is " + size +
                                    " in version " + ferry_version());
    ASSERT_EQ(status.violations().size(), 1u);
    EXPECT_EQ(status.violations()[0].field, "options.struct_size");
  }
  ASSERT_OK(post(sizeof(size_t)));  // of an older version
  ASSERT_OK(post(sizeof(ferry_post_options)));
  ASSERT_OK(post(sizeof(options)));  // of a newer one
  options.newer = 1;                 // and what that knows is wanted
  EXPECT_THAT(std::string(post(sizeof(options)).message()),
              HasSubstr("knows " + size + " bytes of it"));
  ferry_session_options open{};
  ferry_session* opened = nullptr;
  EXPECT_THAT(std::string(Status(ferry_session_open(&open, &opened)).message()),
              HasSubstr("it must be sizeof(ferry_session_options), which is"));
}

// Of whatever is wrong with a call its field is told, also where only the state of things is.
TEST_F(BadArgumentTest, RefusalsNameTheirField) {
  Session session = Open();
  const auto field = [](const Status& status) {
    const auto violations = status.violations();
    return violations.size() == 1 ? std::string(violations[0].field) : status.ToString();
  };
  auto arena = session.CreateArena(0, 4096);
  EXPECT_EQ(field(session.CreateArena(0, 0).status()), "bytes");
  EXPECT_EQ(field(session.CreateArena(0, 4096, 6).status()), "flags");
  EXPECT_EQ(field(session.ImportArena(0, -1, 4096).status()), "memfd");
  EXPECT_EQ(field(session.Define(64, 1)), "timeline");
  EXPECT_EQ(field(session.WaitOver(64, 1)), "timeline");
  EXPECT_EQ(field(session.ResetOver(64)), "timeline");
  EXPECT_EQ(field(session.ReceiveNew(0, {Keyed("a"), Keyed("b")}, {8}).status()), "count");
  EXPECT_EQ(field(session.ReceiveNew(0, {Keyed("a"), Keyed("b")}, {8, UINT64_MAX}).status()),
            "bytes[1]");
  auto batch = session.Receive(1, {Keyed("never", {}, 0)});
  ASSERT_OK(batch);
  EXPECT_EQ(field(batch->TransferStatus(1)), "index");
  const Status early = batch->TransferStatus(0);
  EXPECT_EQ(early.code_name(), "FAILED_PRECONDITION");
  EXPECT_EQ(field(early), "index");
  auto watcher = [](uint64_t, const ferry_status*) {};
  ASSERT_OK(session.Watch(&watcher));
  EXPECT_EQ(field(session.Watch(&watcher)), "session");
  session.Close();
}

TEST_F(BadArgumentTest, OptionsOfASessionAreCheckedByName) {
  const auto field = [&](const SessionOptions& options) {
    const Status status = Session::Open(options).status();
    const auto violations = status.violations();
    return violations.size() == 1 ? std::string(violations[0].field) : status.ToString();
  };
  SessionOptions options;
  options.client_dir = dir_;
  options.name = "not a name";
  EXPECT_EQ(field(options), "options.name");
  options.name = std::string(64, 'a');
  EXPECT_EQ(field(options), "options.name");
  options.name = std::string(63, 'a');
  EXPECT_EQ(field(options), "OK");
  options.client_dir = "/" + std::string(100, 'd');
  EXPECT_EQ(field(options), "options.client_dir");
}

// A number that no enum of the headers has is none of its values.
TEST_F(BadArgumentTest, UnknownNumbersAreRefused) {
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  const auto field = [](const Status& status) {
    const auto violations = status.violations();
    return violations.size() == 1 ? std::string(violations[0].field) : status.ToString();
  };
  for (const int number : {-1, FERRY_ROUTE_TCP + 1, 99}) {
    PostOptions options;
    options.route = number;
    EXPECT_EQ(field(session.Send(0, {Keyed("echo")}, options).status()), "options.route") << number;
    EXPECT_EQ(field(session.PrepareSend(0, {Keyed("echo")}, options).status()), "options.route");
  }
  for (const int number : {-1, FERRY_F4E2M1FN + 1, 99}) {
    Transfer odd = Keyed("echo");
    odd.data_type = number;
    EXPECT_EQ(field(session.Send(0, {Keyed("echo"), odd}).status()), "sends[1].data_type");
    ferry_binding binding{"x", arena->All(), number, nullptr};
    ferry_program* program = nullptr;
    ASSERT_OK(Status(ferry_program_compile(session.get(), 0, "text", 4, &program)));
    ferry_run run{};
    run.program = program;
    run.bindings = &binding;
    run.binding_count = 1;
    ferry_batch* raw = nullptr;
    const Status ran(ferry_run_programs(session.get(), 0, &run, 1, nullptr, &raw));
    EXPECT_EQ(field(ran), "runs[0].bindings[0].data_type");
    ferry_program_free(program);
  }
}

TEST_F(BadArgumentTest, PointersAreChecked) {
  Session session = Open();
  Session other = Open();
  auto foreign = other.CreateArena(0, 4096);
  auto batch = session.Send(0, {Keyed("a"), Keyed("b", {foreign->All(), Range{nullptr, 0, 1}})});
  EXPECT_EQ(batch.status().reason(), "FIELD_INVALID");
  ASSERT_EQ(batch.status().violations().size(), 2u);
  EXPECT_EQ(batch.status().violations()[0].field, "sends[1].ranges[0]");
  EXPECT_EQ(batch.status().violations()[1].field, "sends[1].ranges[1]");
  Transfer blocks = Keyed("c");
  blocks.strided = StridedRange{nullptr, 0, 1, 1, 1};
  blocks.blocks = foreign->Blocks(0, 1, {});
  batch = session.Send(0, {blocks});
  ASSERT_EQ(batch.status().violations().size(), 2u);
  EXPECT_EQ(batch.status().violations()[0].field, "sends[0].strided");
  EXPECT_EQ(batch.status().violations()[1].field, "sends[0].blocks");
  auto own = session.CreateArena(0, 4096);
  const ferry_block_table table{own->get(), 0, 8, nullptr, 1};
  ferry_transfer no_indices{};
  no_indices.blocks = &table;
  ferry_batch* raw = nullptr;
  Status missing(ferry_cross_host_send(session.get(), 0, &no_indices, 1, nullptr, &raw));
  ASSERT_EQ(missing.violations().size(), 1u);
  EXPECT_EQ(missing.violations()[0].field, "sends[0].blocks.indices");
  ferry_arena* const freed = own->release();
  ferry_arena_free(freed);
  const auto of_none = session.Send(0, {Keyed("d", {Range{freed, 0, 8}})});
  ASSERT_EQ(of_none.status().violations().size(), 1u);
  EXPECT_EQ(of_none.status().violations()[0].field, "sends[0].ranges[0]");
  EXPECT_EQ(of_none.status().violations()[0].text, "is of an arena that was freed");
}

}  // namespace
}  // namespace ferry::testing
