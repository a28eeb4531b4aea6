#include "agent/telemetry/gpu_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/fake_clock.h"
#include "tests/support/loopback_node.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kHeader[] =
    "index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], temperature.gpu, "
    "power.draw [W], clocks.current.sm [MHz], clocks.current.memory [MHz], "
    "clocks_event_reasons.active, driver_version\n";

TEST(NvidiaSmiParserTest, ReadsALineByTheHeadersNames) {
  NvidiaSmiParser parser;
  EXPECT_TRUE(parser.AddLine(kHeader));
  EXPECT_TRUE(parser.AddLine(
      "0, NVIDIA H200, 87, 61234, 143771, 54, 512.31, 1980, 3201, 0x0000000000000004, 570.86.15"));
  ASSERT_THAT(parser.samples(), SizeIs(1));
  const GpuSample& gpu = parser.samples().at(0);
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.utilization_percent, 87);
  EXPECT_EQ(gpu.memory_used_bytes, int64_t{61234} << 20);
  EXPECT_EQ(gpu.memory_total_bytes, int64_t{143771} << 20);
  EXPECT_EQ(gpu.temperature_c, 54);
  EXPECT_EQ(gpu.power_w, 512.31);
  EXPECT_EQ(gpu.sm_clock_mhz, 1980);
  EXPECT_EQ(gpu.memory_clock_mhz, 3201);
  EXPECT_EQ(gpu.throttle_reasons, 4u);
  EXPECT_EQ(gpu.driver_version, "570.86.15");
}

TEST(NvidiaSmiParserTest, HasAllGpusOnceOneComesAgain) {
  NvidiaSmiParser parser;
  parser.AddLine("index, uuid");
  parser.AddLine("0, GPU-a");
  parser.AddLine("1, [N/A]");
  EXPECT_FALSE(parser.HasAll());
  EXPECT_EQ(parser.samples().at(0).uuid, "GPU-a");
  EXPECT_EQ(parser.samples().at(1).uuid, "");
  parser.AddLine("0, GPU-a");
  EXPECT_TRUE(parser.HasAll());
  parser.Clear();
  EXPECT_FALSE(parser.HasAll());
}

TEST(NvidiaSmiParserTest, OtherOrderAndMoreColumnsDoNotMatter) {
  NvidiaSmiParser parser;
  EXPECT_TRUE(parser.AddLine("temperature.gpu, fan.speed [%], index, utilization.gpu [%]"));
  EXPECT_TRUE(parser.AddLine("61, [N/A], 3, 12"));
  EXPECT_EQ(parser.samples().at(3).temperature_c, 61);
  EXPECT_EQ(parser.samples().at(3).utilization_percent, 12);
  EXPECT_FALSE(parser.samples().at(3).power_w.has_value());
}

TEST(NvidiaSmiParserTest, WhatIsNotSupportedIsAbsent) {
  NvidiaSmiParser parser;
  parser.AddLine(kHeader);
  EXPECT_TRUE(parser.AddLine("0, GPU, [N/A], [Not Supported], 100, ERR!, , -, 1, garbage, [N/A]"));
  const GpuSample& gpu = parser.samples().at(0);
  EXPECT_FALSE(gpu.utilization_percent.has_value());
  EXPECT_FALSE(gpu.memory_used_bytes.has_value());
  EXPECT_FALSE(gpu.temperature_c.has_value());
  EXPECT_FALSE(gpu.throttle_reasons.has_value());
  EXPECT_EQ(gpu.driver_version, "");
  EXPECT_EQ(gpu.memory_total_bytes, int64_t{100} << 20);
}

TEST(NvidiaSmiParserTest, RefusesOtherText) {
  NvidiaSmiParser parser;
  EXPECT_FALSE(parser.AddLine("0, before, the, header"));
  parser.AddLine(kHeader);
  EXPECT_FALSE(parser.AddLine("Unable to determine the device handle for GPU 0000:41:00.0"));
  EXPECT_FALSE(parser.AddLine("0, too, few"));
  EXPECT_FALSE(parser.AddLine("-1, a, 1, 1, 1, 1, 1, 1, 1, 0x0, 1"));
  EXPECT_THAT(parser.samples(), IsEmpty());
}

// Tests the probe with fakes of nvidia-smi.
class NvidiaSmiProbeTest : public ::testing::Test {
 protected:
  // Samples and advances the clock until `wanted` is true.
  void SampleUntil(NvidiaSmiProbe& probe, const std::function<bool(std::vector<GpuSample>)>& wanted,
                   absl::Duration step = absl::Milliseconds(10)) {
    Eventually(
        [&] {
          clock_.Advance(step);
          return wanted(probe.Sample());
        },
        "the wanted sample");
  }
  std::string Script(const std::string& body) {
    return dir_.Write("nvidia-smi", "#!/bin/sh\n" + body, 0755);
  }
  int Starts() const {
    const std::string starts = ReadFileToString(dir_.Sub("starts")).value_or("");
    return static_cast<int>(std::count(starts.begin(), starts.end(), '\n'));
  }
  std::string CountStart() const { return "echo >> " + dir_.Sub("starts") + "\n"; }

  TempDir dir_;
  FakeClock clock_;
};

TEST_F(NvidiaSmiProbeTest, Answers) {
  NvidiaSmiProbe probe(Script(absl::StrCat("printf '", "index, name, utilization.gpu [%%]\\n",
                                           "0, A, 10\\n1, B, 20\\n'\nexec sleep 1000\n")),
                       clock_);
  SampleUntil(probe, [](const std::vector<GpuSample>& samples) { return samples.size() == 2; });
  EXPECT_EQ(probe.Sample()[1].utilization_percent, 20);
}

TEST_F(NvidiaSmiProbeTest, DiesAndIsStartedAgainAfterAPause) {
  NvidiaSmiProbe probe(Script(CountStart() + "exit 9\n"), clock_);
  SampleUntil(
      probe, [&](const std::vector<GpuSample>&) { return Starts() >= 3; }, absl::Milliseconds(500));
  EXPECT_THAT(probe.Sample(), IsEmpty());
  // The pause grows: nothing starts while time stands still.
  const int before = Starts();
  for (int i = 0; i < 50; ++i) probe.Sample();
  EXPECT_LE(Starts(), before + 1);
}

TEST_F(NvidiaSmiProbeTest, HangsAndIsKilledAndOldValuesAreForgotten) {
  NvidiaSmiProbe probe(Script(CountStart() + "printf 'index, name\\n0, A\\n'\nexec sleep 1000\n"),
                       clock_);
  SampleUntil(probe, [](const std::vector<GpuSample>& samples) { return samples.size() == 1; });
  EXPECT_EQ(Starts(), 1);
  SampleUntil(
      probe, [](const std::vector<GpuSample>& samples) { return samples.empty(); },
      absl::Seconds(1));
  SampleUntil(
      probe, [&](const std::vector<GpuSample>&) { return Starts() >= 2; }, absl::Seconds(1));
}

TEST_F(NvidiaSmiProbeTest, ChangesItsColumnsInMidStream) {
  NvidiaSmiProbe probe(
      Script("printf 'index, name, temperature.gpu\\n0, A, 50\\nindex, temperature.gpu, "
             "power.draw [W]\\n0, 51, 99.5\\n'\nexec sleep 1000\n"),
      clock_);
  SampleUntil(probe, [](const std::vector<GpuSample>& samples) {
    return samples.size() == 1 && samples[0].power_w == 99.5;
  });
  EXPECT_EQ(probe.Sample()[0].temperature_c, 51);
}

TEST_F(NvidiaSmiProbeTest, MissingProgramMeansNoGpus) {
  NvidiaSmiProbe probe(dir_.Sub("absent"), clock_);
  for (int i = 0; i < 10; ++i) {
    clock_.Advance(absl::Seconds(30));
    EXPECT_THAT(probe.Sample(), IsEmpty());
  }
}

}  // namespace
}  // namespace gpuctl
