#include "provisioning/market/rest_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "absl/strings/escaping.h"
#include "provisioning/market/regions.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Code = absl::StatusCode;

TEST(WireTest, RefusesWhatIsNoJson) {
  EXPECT_OK(ParseWireJson(R"({"a":[1,2]})"));
  for (const char* body : {"", "{", "<html>", "{\"a\":1e999}", "\"\xff\"", "{}{}"}) {
    EXPECT_THAT(ParseWireJson(body), StatusIs(Code::kUnknown)) << body;
  }
  EXPECT_OK(ParseWireJson(std::string(60, '[') + std::string(60, ']')));
  EXPECT_THAT(ParseWireJson(std::string(80, '[') + std::string(80, ']')),
              StatusIs(Code::kUnknown, HasSubstr("deep")));
  EXPECT_FALSE(ParseWireJson(std::string(1 << 20, '[')).ok());
  EXPECT_FALSE(ParseWireJson("\"" + std::string(33 << 20, 'a') + "\"").ok());
}

TEST(WireTest, ReadsTypesAndNamesTheFirstWrongField) {
  const auto json = *ParseWireJson(
      R"({"s":"x","n":1.5,"i":3.0,"big":18446744073709551615,"t":"12","b":true,"z":null})");
  WireObject object(json, "thing");
  EXPECT_EQ(object.String("s"), "x");
  EXPECT_EQ(object.Number("n"), 1.5);
  EXPECT_EQ(object.Int("i"), 3);
  EXPECT_EQ(object.LooseInt("t"), 12);
  EXPECT_EQ(object.OptionalBool("b"), true);
  EXPECT_EQ(object.OptionalString("z"), std::nullopt);
  EXPECT_OK(object.status());
  EXPECT_EQ(object.Int("n"), 0);
  EXPECT_EQ(object.String("z"), "");
  EXPECT_THAT(object.status(), StatusIs(Code::kUnknown, HasSubstr("field n of thing is a JSON")));
  WireObject big(json, "thing");
  EXPECT_FALSE(big.OptionalInt("big").has_value());
  EXPECT_FALSE(big.status().ok());
  WireObject strict(json, "thing");
  EXPECT_FALSE(strict.OptionalInt("t").has_value());
  EXPECT_FALSE(strict.status().ok());
}

TEST(WireTest, WhatMayHaveBeenMadeIsUnknownOnlyForCreates) {
  EXPECT_EQ(StatusOfHttp(503, "").code(), Code::kUnavailable);
  EXPECT_EQ(StatusOfCreate(503, "").code(), Code::kUnknown);
  EXPECT_EQ(StatusOfCreate(429, "").code(), Code::kUnavailable);
  EXPECT_EQ(StatusOfCreate(200, "").code(), Code::kUnknown);
  EXPECT_EQ(BeforeCreate(absl::DeadlineExceededError("x")).code(), Code::kUnavailable);
  EXPECT_EQ(BeforeCreate(absl::UnauthenticatedError("x")).code(), Code::kUnauthenticated);
}

TEST(WireTest, ShowsOneCleanLine) {
  EXPECT_EQ(PrintableText("a\nb\x1b[31m\tc"), "a b [31m c");
  EXPECT_EQ(PrintableText("abcdef", 3), "abc...");
  EXPECT_EQ(PrintableText("ab\xc3\xa4", 3), "ab...");
  EXPECT_EQ(PrintableText("\xff!"), "\xef\xbf\xbd!");
}

TEST(WireTest, TellsKeysByTypeAndBlob) {
  const std::string blob = "AAAAC3NzaC1lZDI1NTE5AAAAIHt0";
  EXPECT_EQ(SshKeyIdentity("ssh-ed25519 " + blob + " ada@laptop\n"), "ssh-ed25519 " + blob);
  EXPECT_EQ(SshKeyIdentity("ssh-ed25519  " + blob), "ssh-ed25519 " + blob);
  EXPECT_EQ(SshKeyIdentity("ssh-ed25519"), "");
}

TEST(WireTest, GuardsWhatReachesACommandLine) {
  EXPECT_TRUE(IsSafeHost("203.0.113.7"));
  EXPECT_TRUE(IsSafeHost("2001:db8::1"));
  for (const char* host : {"", "-oProxyCommand=x", "a b", "a;b", "a\n", "a/b"}) {
    EXPECT_FALSE(IsSafeHost(host)) << host;
  }
  EXPECT_FALSE(IsSafeUser("-l"));
  EXPECT_EQ(QuoteForShell("it's"), "'it'\\''s'");
  EXPECT_EQ(UrlEncode("a/b c?"), "a%2Fb%20c%3F");
  EXPECT_TRUE(IsEnvName("A_1"));
  EXPECT_FALSE(IsEnvName("1A"));
  EXPECT_FALSE(IsEnvName("A-B"));
  EXPECT_EQ(DiskGb(1, 40), 1);
  EXPECT_EQ(DiskGb(0, 40), 40);
  EXPECT_EQ(DiskGb(60'000'000'001, 40), 61);
}

TEST(WireTest, PacksWhatGzipUnpacks) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "echo line " + std::to_string(i) + "\n";
  std::string packed;
  ASSERT_TRUE(absl::Base64Unescape(GzipBase64(text), &packed));
  EXPECT_LT(packed.size(), text.size() / 3);
  z_stream stream = {};
  ASSERT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string unpacked(text.size() + 1, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(unpacked.data());
  stream.avail_out = static_cast<uInt>(unpacked.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  unpacked.resize(stream.total_out);
  inflateEnd(&stream);
  EXPECT_EQ(unpacked, text);
}

TEST(WireTest, MessagesHaveNoSecretsOfBodies) {
  const std::string body = R"({"instance_api_key":"canary","new_contract":7})";
  const std::string said = HttpSaid({400, {}, body}, "");
  EXPECT_EQ(said.find("canary"), std::string::npos) << said;
  EXPECT_NE(said.find("new_contract"), std::string::npos) << said;
  const absl::Status torn = ParseWireJson(body.substr(0, body.size() - 3)).status();
  EXPECT_FALSE(torn.ok());
  EXPECT_EQ(torn.message().find("canary"), std::string::npos) << torn;
  EXPECT_EQ(HttpSaid({502, {}, "Bad Gateway"}, ""), "HTTP 502: Bad Gateway");
}

TEST(RegionsTest, KnowsCountriesRegionsAndGroups) {
  EXPECT_EQ(CountryCode("California, USA"), "US");
  EXPECT_EQ(CountryCode("Frankfurt, Germany"), "DE");
  EXPECT_EQ(CountryCode("Sweden, SE"), "SE");
  EXPECT_EQ(CountryCode("us"), "US");
  EXPECT_EQ(CountryCode("EU"), "");
  EXPECT_EQ(CountryCode("us-west-1"), "");
  EXPECT_TRUE(IsInRegions({}, "anywhere", ""));
  EXPECT_TRUE(IsInRegions({"DE", "us"}, "us-west-1", "US"));
  EXPECT_TRUE(IsInRegions({"us-west"}, "us-west-1", "US"));
  EXPECT_FALSE(IsInRegions({"us-west"}, "us-east-1", "US"));
  EXPECT_FALSE(IsInRegions({"us-w"}, "us-west-1", "US"));
  EXPECT_TRUE(IsInRegions({"EU"}, "EU-RO-1", "RO"));
  EXPECT_FALSE(IsInRegions({"EU"}, "EUR-IS-1", "IS"));
  EXPECT_FALSE(IsInRegions({"EU"}, "somewhere", ""));
  EXPECT_TRUE(IsInRegions({"UK"}, "London, GB", "GB"));
  EXPECT_THAT(*CountriesAsked({"US", "north-america"}),
              UnorderedElementsAre("US", "US", "CA", "MX"));
  EXPECT_FALSE(CountriesAsked({"us-west-1"}).has_value());
  EXPECT_EQ(CountriesAsked({"EU"})->size(), 27u);
}

}  // namespace
}  // namespace gpuctl
