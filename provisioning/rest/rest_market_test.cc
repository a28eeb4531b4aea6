#include "provisioning/rest/rest_market.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "provisioning/rest/refusals.h"
#include "provisioning/rest/ssh_keys.h"
#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;
using State = Instance::State;

constexpr char kBase[] = "http://market.test/base";
constexpr char kBlob[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0";

MarketError ErrorIn(absl::string_view body) {
  return ParseWhatFits<MarketError>(
      body, [](JsonReader& answer, MarketError& error) { answer.Read("error", error.code); });
}

constexpr Refusal kRefusals[] = {{0, "gone", "", Code::kNotFound, Code::kOk},
                                 {0, "twin", "", Code::kAlreadyExists, Code::kAlreadyExists}};

absl::Status StatusOf(const HttpResponse& response, bool creating) {
  return StatusOfRefusal(response, ErrorIn(response.body), kRefusals, creating);
}

// ---- Lists

constexpr absl::string_view kNext[] = {"next", "pagination.cursor"};
constexpr absl::string_view kMore[] = {"more"};
constexpr absl::string_view kLink[] = {"links.next"};

ListShape Shape(Paging paging) {
  return {
      .what = "the list", .part = "row", .rows = "rows", .id = "id", .paging = std::move(paging)};
}

class ListRowsTest : public ::testing::Test {
 protected:
  // Returns the ids that came, or the error.
  absl::StatusOr<std::vector<std::string>> Read(const ListShape& shape,
                                                absl::string_view path = "/things?per_page=2") {
    const RestApi api(http_, {kBase, "key-1"}, "", StatusOf);
    ASSIGN_OR_RETURN(const auto rows, ListRows(api, "list things", path, shape));
    std::vector<std::string> ids;
    for (const nlohmann::json& row : rows) ids.push_back(row["id"].dump());
    return ids;
  }
  std::vector<std::string> Paths() {
    std::vector<std::string> paths;
    for (const HttpRequest& request : http_->requests()) {
      paths.push_back(request.url.substr(sizeof(kBase) - 1));
    }
    return paths;
  }
  std::shared_ptr<FakeHttp> http_ = std::make_shared<FakeHttp>();
};

TEST_F(ListRowsTest, PagesByNumberEndWithAnEmptyOne) {
  http_->Answer(200, R"({"rows":[{"id":1},{"id":2}]})")
      .Answer(200, R"({"rows":[{"id":3}]})")
      .Answer(200, R"({"rows":[]})");
  const auto ids = Read(Shape({.by = Paging::By::kPageNumber, .parameter = "page"}));
  ASSERT_OK(ids);
  EXPECT_THAT(*ids, ElementsAre("1", "2", "3"));
  EXPECT_THAT(Paths(), ElementsAre("/things?per_page=2&page=1", "/things?per_page=2&page=2",
                                   "/things?per_page=2&page=3"));
}

TEST_F(ListRowsTest, TheNumberOfAllRowsSavesTheEmptyPageAndCatchesALostRow) {
  const ListShape shape =
      Shape({.by = Paging::By::kOffset, .parameter = "offset", .total = "meta.total"});
  http_->Answer(200, R"({"rows":[{"id":1},{"id":2}],"meta":{"total":3}})")
      .Answer(200, R"({"rows":[{"id":3}],"meta":{"total":3}})");
  const auto ids = Read(shape, "/things");
  ASSERT_OK(ids);
  EXPECT_EQ(ids->size(), 3u);
  EXPECT_THAT(Paths(), ElementsAre("/things?offset=0", "/things?offset=2"));
  http_->Answer(200, R"({"rows":[{"id":1}],"meta":{"total":2}})")
      .Answer(200, R"({"rows":[],"meta":{"total":2}})");
  EXPECT_THAT(Read(shape), StatusIs(Code::kUnavailable, HasSubstr("1 came, and there are 2")));
}

TEST_F(ListRowsTest, ACursorMayBeInTwoPlaces) {
  const ListShape shape =
      Shape({.by = Paging::By::kCursor, .parameter = "after", .next = kNext, .more = kMore});
  http_->Answer(200, R"({"rows":[{"id":1}],"next":"a b"})")
      .Answer(200, R"({"rows":[{"id":2}],"pagination":{"cursor":"c"},"more":true})")
      .Answer(200, R"({"rows":[],"next":"d","more":false})");
  const auto ids = Read(shape, "/things");
  ASSERT_OK(ids);
  EXPECT_EQ(ids->size(), 2u);
  EXPECT_THAT(Paths(), ElementsAre("/things", "/things?after=a%20b", "/things?after=c"));
  http_->Answer(200, R"({"rows":[],"more":true})");
  EXPECT_THAT(Read(shape), StatusIs(Code::kUnknown, HasSubstr("nothing leads there")));
  // In a way that is not this market's.
  http_->Answer(200, R"({"rows":[],"pagination":{"next":"x"}})");
  EXPECT_THAT(Read(shape), StatusIs(Code::kUnknown, HasSubstr("another page")));
}

TEST_F(ListRowsTest, ALinkLeadsOnAtTheSameMarketOnly) {
  const ListShape shape = Shape({.by = Paging::By::kLink, .next = kLink});
  http_->Answer(200, R"({"rows":[{"id":1}],"links":{"next":"http://x.test/base/things?page=2"}})")
      .Answer(200, R"({"rows":[{"id":2}],"links":{"next":"https://evil.test/things?page=3"}})")
      .Answer(200, R"({"rows":[{"id":3}],"links":{}})");
  ASSERT_OK(Read(shape, "/things"));
  // The key goes to the base address alone, whatever host the link has.
  EXPECT_THAT(Paths(), ElementsAre("/things", "/things?page=2", "/things?page=3"));
  for (const char* bad : {"https://x.test", "nowhere", "http://x.test/a b"}) {
    http_->Answer(200, std::string(R"({"rows":[],"links":{"next":")") + bad + R"("}})");
    EXPECT_THAT(Read(shape), StatusIs(Code::kUnknown)) << bad;
  }
}

TEST_F(ListRowsTest, AHeaderLeadsOn) {
  const ListShape shape = {
      .what = "the list", .part = "row", .id = "id", .paging = {.by = Paging::By::kLinkHeader}};
  const auto link = [](const std::string& value) {
    return std::vector<std::pair<std::string, std::string>>{{"date", "x"}, {"link", value}};
  };
  http_
      ->Answer(200, R"([{"id":1}])",
               link("<http://x.test/base/things?a=1>; rel=\"prev\", "
                    "<http://x.test/base/things?a=3&b=%2C>; title=\"more\"; rel=\"next\""))
      .Answer(200, R"([{"id":2}])", link("</things?a=4>; rel=next"))
      .Answer(200, R"([{"id":3}])", link("</things?a=1>; rel=\"first\""));
  ASSERT_OK(Read(shape, "/things"));
  EXPECT_THAT(Paths(), ElementsAre("/things", "/things?a=3&b=%2C", "/things?a=4"));
  for (const char* bad : {"<>; rel=\"next\"", "<nowhere>; rel=\"next\"", "rel=next", ">; rel=next",
                          "</a; rel=next"}) {
    http_->Answer(200, "[]", link(bad));
    EXPECT_THAT(Read(shape, "/things"), StatusIs(Code::kUnknown)) << bad;
  }
  for (const char* none : {"", "<", "<a", "</a>; rel=\"prev\""}) {
    http_->Answer(200, "[]", link(none));
    EXPECT_OK(Read(shape, "/things")) << none;
  }
}

TEST_F(ListRowsTest, PagesWithoutAnEndFail) {
  const ListShape link = Shape({.by = Paging::By::kLink, .next = kLink});
  http_->Answer(200, R"({"rows":[{"id":1}],"links":{"next":"/things"}})");
  EXPECT_THAT(Read(link, "/things"), StatusIs(Code::kUnknown, HasSubstr("do not end")));
  // A server that does not know the parameter sends its first page for ever.
  http_->Answer(200, R"({"rows":[{"id":1}]})").Answer(200, R"({"rows":[{"id":1}]})");
  EXPECT_THAT(Read(Shape({.by = Paging::By::kPageNumber, .parameter = "page"})),
              StatusIs(Code::kUnknown, "list things: 1 came twice"));
  http_->Answer(200, R"({"rows":[{"id":1}]})").Answer(200, R"({"rows":[{"id":2}]})");
  EXPECT_THAT(Read(Shape({.by = Paging::By::kPageNumber, .parameter = "page", .max_pages = 2})),
              StatusIs(Code::kUnknown, "list things: more than 2 pages"));
}

TEST_F(ListRowsTest, WhatIsNoWholeListIsAnError) {
  for (const char* body : {"", "<html>", "{}", "[]", R"({"rows":{}})", R"({"rows":null})",
                           R"({"rows":[],"has_more":true})", R"({"rows":[)"}) {
    http_->Answer(200, body);
    EXPECT_THAT(Read(Shape({})), StatusIs(Code::kUnknown)) << body;
  }
  http_->Answer(206, R"({"rows":[]})");
  EXPECT_THAT(Read(Shape({})), StatusIs(Code::kUnknown));
  http_->Answer(404, "<html>");
  EXPECT_THAT(Read(Shape({})), StatusIs(Code::kUnknown));
  // An error in the middle loses all of it.
  http_->Answer(200, R"({"rows":[{"id":1}]})").Answer(503);
  EXPECT_THAT(Read(Shape({.by = Paging::By::kPageNumber, .parameter = "page"})),
              StatusIs(Code::kUnavailable));
}

// ---- Keys

constexpr absl::string_view kKeyFields[] = {"key", "public_key"};
constexpr SshKeyShape kKeys = {
    .path = "/keys",
    .list = {.what = "the list of keys", .part = "key", .rows = "keys", .id = "id"},
    .key = kKeyFields,
    .deleted = "deleted",
    .new_name = "name",
    .new_key = "key",
    .made = "made"};

class SshKeyTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Ensure(const std::string& line) {
    return EnsureSshKey(RestApi(http_, {kBase, "key-1"}, "", StatusOf), kKeys, line);
  }
  static std::string Listed(const std::string& rows) { return R"({"keys":[)" + rows + "]}"; }
  static std::string Row(int id, const std::string& more = "") {
    return absl::StrCat(R"({"id":)", id, R"(,"public_key":")", kBlob, R"( a comment")", more, "}");
  }
  std::shared_ptr<FakeHttp> http_ = std::make_shared<FakeHttp>();
};

TEST_F(SshKeyTest, AKeyIsFoundByItsContent) {
  http_->Answer(200, Listed(R"({"id":6,"key":"ssh-rsa AAAAB3NzaC1yc2EAAAADAQ"},)" +
                            Row(7, R"(,"deleted":"2026-01-01")") + "," + Row(8)));
  EXPECT_EQ(Ensure(std::string(kBlob) + " ada@laptop").value(), "8");
  EXPECT_EQ(http_->requests().size(), 1u);
  http_->Answer(200, Listed(R"({"id":6,"key":"ssh-rsa AAAAB3NzaC1yc2EAAAADAQ"})"));
  EXPECT_EQ(Ensure("").value(), "6");
  http_->Answer(200, Listed(""));
  EXPECT_THAT(Ensure(""), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ensure("no key"), StatusIs(Code::kInvalidArgument));
}

TEST_F(SshKeyTest, AMissingOneIsAddedAndARaceMayBeLost) {
  http_->Answer(200, Listed("")).Answer(201, R"({"made":{"id":9,"name":"n"}})");
  EXPECT_EQ(Ensure(kBlob).value(), "9");
  const nlohmann::json sent = nlohmann::json::parse(http_->requests().at(1).body);
  EXPECT_EQ(sent["key"], kBlob);
  EXPECT_EQ(sent["name"].get<std::string>().size(), 7u + 12u);
  for (const int status : {400, 409, 422}) {
    http_->Answer(200, Listed("")).Answer(status, R"({"error":"in use"})");
    http_->Answer(200, Listed(Row(8)));
    EXPECT_EQ(Ensure(kBlob).value(), "8") << status;
  }
  http_->Answer(200, Listed("")).Answer(409, R"({"error":"twin"})").Answer(200, Listed(""));
  EXPECT_THAT(Ensure(kBlob),
              StatusIs(Code::kInvalidArgument, HasSubstr("another one of the name")));
}

TEST_F(SshKeyTest, WhatIsNoLostRaceIsAnError) {
  for (const int status : {401, 403, 429, 500}) {
    http_->Answer(200, Listed("")).Answer(status, "{}");
    EXPECT_FALSE(Ensure(kBlob).ok()) << status;
  }
  http_->Answer(200, Listed("")).Answer(201, R"({"made":{"name":"n"}})");
  EXPECT_THAT(Ensure(kBlob), StatusIs(Code::kUnknown, HasSubstr("field id")));
  http_->Answer(200, Listed(R"({"id":{},"key":")" + std::string(kBlob) + R"("})"));
  EXPECT_THAT(Ensure(kBlob), StatusIs(Code::kUnknown));
}

// ---- Instances

constexpr StateWord kWords[] = {{"on", State::kRunning},
                                {"lost", State::kSilent},
                                {"off", State::kFailed},
                                {"over", State::kStopping, true}};
constexpr absl::string_view kMoreWords[] = {"why", "code"};
constexpr MarketShape kShape = {
    .name = "example",
    .title = "Example",
    .machine = "box",
    .base_url = kBase,
    .instance = {.tags = "tags",
                 .lease_tag = "gpuctl-lease",
                 .states = kWords,
                 .more = kMoreWords,
                 .host = "net.ip",
                 .port = "net.port",
                 .created = "made"},
    .list_path = "/boxes?of={account}",
    .list = {.what = "the list of boxes", .part = "box", .rows = "boxes", .id = "id"},
    .describe = {.path = "/boxes/{id}", .rate_class = "one", .row = "box"},
    .end = {.path = "/boxes/{id}"},
    .numeric_ids = true,
    .null_is_gone = true,
    .key_header = {.name = "X-API-KEY", .before_key = ""}};

class ExampleMarket : public RestMarket {
 public:
  explicit ExampleMarket(std::shared_ptr<Http> http)
      : RestMarket(kShape, std::move(http), {kBase, "key-12345"}, StatusOf) {}
  ProviderTraits traits() const override { return {}; }
  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements&) override {
    return std::vector<Offer>();
  }
  absl::StatusOr<Instance> Rent(const Offer&, const RentOptions&, absl::string_view) override {
    return absl::UnimplementedError("rent");
  }
  absl::StatusOr<std::string> account = std::string("me");

 private:
  absl::StatusOr<std::string> AccountInPath() override { return account; }
  void Complete(JsonReader& row, Instance& instance) const override {
    row.Read("price", instance.price_usd_per_hour);
  }
};

class RestMarketTest : public ::testing::Test {
 protected:
  absl::StatusOr<Instance> Described(const std::string& fields) {
    http_->Answer(200, R"({"box":{"id":7,)" + fields + "}}");
    return market_.Describe("7");
  }
  std::shared_ptr<FakeHttp> http_ = std::make_shared<FakeHttp>();
  ExampleMarket market_{http_};
};

TEST_F(RestMarketTest, ReadsARowByItsTable) {
  const auto box = Described(
      R"("name":"mine","status":"on","net":{"ip":"192.0.2.1","port":2222},"price":1.5,
         "made":"2026-03-13T20:00:00Z")");
  ASSERT_OK(box);
  EXPECT_EQ(box->id, "7");
  EXPECT_EQ(box->label, "mine");
  EXPECT_EQ(box->state, State::kRunning);
  EXPECT_EQ(box->address.value().host, "192.0.2.1");
  EXPECT_EQ(box->address->port, 2222);
  EXPECT_EQ(box->address->user, "root");
  EXPECT_DOUBLE_EQ(box->price_usd_per_hour, 1.5);
  EXPECT_EQ(box->created_ms, 1773432000000);
  EXPECT_EQ(http_->requests().at(0).rate_class, "one");
  EXPECT_EQ(http_->requests().at(0).headers.at(0).first, "X-API-KEY");
  EXPECT_EQ(http_->requests().at(0).headers.at(0).second, "key-12345");
}

TEST_F(RestMarketTest, OnlyARunningOneWithAnAddressRuns) {
  constexpr char kNet[] = R"(,"net":{"ip":"192.0.2.1","port":22})";
  EXPECT_EQ(Described(R"("status":"on")")->state, State::kStarting);
  EXPECT_EQ(Described(R"("status":"brand new")")->state, State::kStarting);
  for (const char* word : {"lost", "off", "brand new"}) {
    const auto box = Described(R"("status":")" + std::string(word) + R"(")" + kNet);
    ASSERT_OK(box);
    EXPECT_FALSE(box->address.has_value()) << word;
  }
}

TEST_F(RestMarketTest, ALostNameIsFoundInTheTags) {
  const std::string label = "gpuctl-00ff12ab-0123456789ab";
  EXPECT_EQ(
      Described(R"("name":"new","status":"on","tags":["x","gpuctl-lease:)" + label + "\"]")->label,
      label);
  EXPECT_EQ(
      Described(R"("status":"on","tags":[{"key":"gpuctl-lease","value":")" + label + "\"}]")->label,
      label);
  EXPECT_EQ(Described(R"("name":"new","status":"on","tags":["gpuctl-lease:x"])")->label, "new");
  EXPECT_EQ(
      Described(R"("name":"new","status":"on","tags":{"gpuctl-lease":")" + label + "\"}")->label,
      label);
  for (const char* bad : {"7", "\"gpuctl-lease\"", R"({"gpuctl-lease":7})"}) {
    EXPECT_THAT(Described(absl::StrCat(R"("status":"on","tags":)", bad)).status(),
                StatusIs(Code::kUnknown))
        << bad;
  }
}

TEST_F(RestMarketTest, AStatusHasItsWords) {
  const auto box = Described(R"("status":"on","why":"cold","code":"X9")");
  EXPECT_EQ(box->status, "on (cold, X9)");
  EXPECT_EQ(Described(R"("status":"on","why":null)")->status, "on");
  const auto gone = Described(R"("status":"over","why":"no money")");
  EXPECT_THAT(gone.status(), StatusIs(Code::kNotFound));
  EXPECT_EQ(WordsOfGone(gone.status()), "it is over (no money)");
  EXPECT_EQ(WordsOfGone(absl::NotFoundError("x")), "");
}

TEST_F(RestMarketTest, AnAccountStandsInThePath) {
  http_->Answer(200, R"({"boxes":[]})");
  market_.account = std::string("a/b");
  EXPECT_OK(market_.ListInstances());
  EXPECT_EQ(http_->requests().back().url, "http://market.test/base/boxes?of=a%2Fb");
  http_->Answer(204);
  EXPECT_OK(market_.Terminate("3"));
  EXPECT_EQ(http_->requests().back().url, "http://market.test/base/boxes/3");
  // An account that is not known makes nothing look gone, and nothing is asked.
  const size_t asked = http_->requests().size();
  market_.account = absl::NotFoundError("no such key");
  EXPECT_THAT(market_.ListInstances(), StatusIs(Code::kUnknown, HasSubstr("no such key")));
  market_.account = std::string();
  EXPECT_THAT(market_.ListInstances(), StatusIs(Code::kUnknown));
  EXPECT_EQ(http_->requests().size(), asked);
}

TEST_F(RestMarketTest, GoneIsTheMarketsOwnWord) {
  EXPECT_THAT(Described(R"("status":"over")").status(), StatusIs(Code::kNotFound));
  http_->Answer(200, R"({"box":null})");
  EXPECT_THAT(market_.Describe("7"), StatusIs(Code::kNotFound));
  http_->Answer(404, R"({"error":"gone"})");
  EXPECT_THAT(market_.Describe("7"), StatusIs(Code::kNotFound));
  http_->Answer(404, "<html>");
  EXPECT_THAT(market_.Describe("7"), StatusIs(Code::kUnknown));
  http_->Answer(200, "{}");
  EXPECT_THAT(market_.Describe("7"), StatusIs(Code::kUnknown));
  // Another one's end says nothing about this one.
  http_->Answer(200, R"({"box":{"id":8,"status":"over"}})");
  EXPECT_THAT(market_.Describe("7"), StatusIs(Code::kUnknown, HasSubstr("about box 8")));
}

TEST_F(RestMarketTest, ABadFieldIsNamed) {
  for (const char* fields :
       {R"("name":"no status")", R"("status":7)", R"("status":"on","net":{"ip":"-oX=y","port":22})",
        R"("status":"on","net":{"ip":"h","port":70000})", R"("status":"on","net":{"ip":"h"})",
        R"("status":"on","price":"1")"}) {
    EXPECT_THAT(Described(fields).status(), StatusIs(Code::kUnknown, HasSubstr("field ")))
        << fields;
  }
}

TEST_F(RestMarketTest, AnIdIsCheckedBeforeTheRequest) {
  EXPECT_THAT(market_.Describe(""), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(market_.Describe("x"), StatusIs(Code::kNotFound));
  EXPECT_THAT(market_.Terminate(""), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(market_.Terminate("0"), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(http_->requests().empty());
}

TEST_F(RestMarketTest, ListsWhatBillsAndEndsIt) {
  http_->Answer(200, R"({"boxes":[{"id":1,"status":"on"},{"id":2,"status":"over"},
                                  {"id":3,"status":"off"}]})");
  const auto boxes = market_.ListInstances();
  ASSERT_OK(boxes);
  ASSERT_EQ(boxes->size(), 2u);
  EXPECT_EQ(boxes->at(1).id, "3");
  http_->Answer(200, R"({"boxes":[{"id":1}]})");
  EXPECT_THAT(market_.ListInstances(), StatusIs(Code::kUnknown));
  http_->Answer(204);
  EXPECT_OK(market_.Terminate("3"));
  EXPECT_EQ(http_->requests().back().method, "DELETE");
  EXPECT_EQ(http_->requests().back().url, "http://market.test/base/boxes/3");
  EXPECT_TRUE(http_->requests().back().repeatable);
  http_->Answer(404, R"({"error":"gone"})");
  EXPECT_THAT(market_.Terminate("3"), StatusIs(Code::kNotFound));
}

}  // namespace
}  // namespace gpuctl
