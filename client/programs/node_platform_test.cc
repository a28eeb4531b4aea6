#include "client/programs/node_platform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

MATCHER_P(IsOkAndHolds, value, "") { return arg.ok() && *arg == value; }

constexpr NodePlatform kMac = NodePlatform::kMacArm64;

TEST(NodePlatformTest, KnowsMachinesByTheirAnswers) {
  const struct {
    const char* answer;
    NodePlatform platform;
  } kKnown[] = {
      {"Linux x86_64\n", kX86},
      {"Linux x86_64", kX86},
      {"Linux amd64\n", kX86},
      {"Linux x86_64\r\n", kX86},
      {"  Linux   x86_64  \n\n", kX86},
      {"Linux\tx86_64\n", kX86},
      {"Linux aarch64\n", kArm},
      {"Linux arm64\n", kArm},
      {"Linux aarch64\r\n\r\n", kArm},
      {"Darwin arm64\n", kMac},
      {"Darwin aarch64\n", kMac},
      {"Welcome to Ubuntu 22.04.4 LTS (GNU/Linux 6.8.0-1021-nvidia-64k aarch64)\n"
       "\n * Documentation: https://help.ubuntu.com\n\nLinux aarch64\n",
       kArm},
      {"Last login: Tue Nov 24 23:08:11 2026 on Darwin arm64\r\nLinux x86_64\r\n", kX86},
  };
  for (const auto& known : kKnown) {
    EXPECT_THAT(PlatformOfUname(known.answer), IsOkAndHolds(known.platform)) << known.answer;
  }
}

TEST(NodePlatformTest, SaysWhatItMetAndWhatThereIs) {
  const struct {
    const char* answer;
    const char* met;
  } kUnknown[] = {
      {"Linux armv7l\n", "its processor is armv7l"},
      {"Linux armv8l\n", "its processor is armv8l"},
      {"Linux i686\n", "its processor is i686"},
      {"Linux riscv64\n", "its processor is riscv64"},
      {"Linux ppc64le\n", "its processor is ppc64le"},
      {"Linux s390x\n", "its processor is s390x"},
      {"Linux mips64\n", "its processor is mips64"},
      {"Linux loongarch64\n", "its processor is loongarch64"},
      {"Linux aarch64_be\n", "its processor is aarch64_be"},
      {"Linux unknown\n", "its processor is unknown"},
      {"Darwin x86_64\n", "it is a Mac, and its processor is x86_64"},
      {"FreeBSD amd64\n", "its system is FreeBSD (processor amd64)"},
      {"OpenBSD amd64\n", "its system is OpenBSD (processor amd64)"},
      {"SunOS i86pc\n", "its system is SunOS (processor i86pc)"},
      {"AIX 00F6DB6D4C00\n", "its system is AIX (processor 00F6DB6D4C00)"},
      {"CYGWIN_NT-10.0-19045 x86_64\n", "its system is CYGWIN_NT-10.0-19045"},
      {"Linux aarch64\nlinux armv7l\n", "its system is linux (processor armv7l)"},
  };
  for (const auto& unknown : kUnknown) {
    EXPECT_THAT(PlatformOfUname(unknown.answer),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr(unknown.met), HasSubstr("x86-64 and arm64 Linux"))))
        << unknown.answer;
  }
}

TEST(NodePlatformTest, AnAnswerThatIsNoneSaysSo) {
  for (const char* answer : {"", "\n", " \r\n \t\n", "Linux\n", "uname:\n"}) {
    EXPECT_THAT(PlatformOfUname(answer),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("uname -sm")))
        << answer;
  }
}

TEST(NodePlatformTest, WhatAMachineSaysIsShownSafely) {
  const absl::Status status =
      PlatformOfUname("Linux \x1b]0;title\x07" + std::string(4096, 'x')).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("?]0;title?x"), Not(HasSubstr("\x1b")), Not(HasSubstr("\x07"))));
  EXPECT_LT(status.message().size(), 200u);
}

TEST(NodePlatformTest, NamesGoBothWays) {
  for (const NodePlatform platform : AllPlatforms()) {
    EXPECT_THAT(PlatformOfName(PlatformName(platform)), IsOkAndHolds(platform));
    EXPECT_THAT(PlatformOfUname(PlatformTitle(platform)), IsOkAndHolds(platform));
  }
  EXPECT_THAT(
      PlatformOfName("linux-arm64"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("linux-x86_64, linux-aarch64, macos-arm64")));
  EXPECT_EQ(PlatformNames({}), "none");
}

// The beginning of an ELF file: class, byte order, machine.
std::string Elf(char bits, char order, unsigned machine) {
  std::string header = std::string("\177ELF") + bits + order + '\1' + std::string(57, '\0');
  header[16] = 3;
  header[18] = static_cast<char>(machine & 255);
  header[19] = static_cast<char>(machine >> 8);
  return header;
}

TEST(NodePlatformTest, KnowsProgramsByTheirHeaders) {
  EXPECT_THAT(PlatformOfProgram(Elf(2, 1, 62)), IsOkAndHolds(kX86));
  EXPECT_THAT(PlatformOfProgram(Elf(2, 1, 183)), IsOkAndHolds(kArm));
  EXPECT_THAT(PlatformOfProgram(std::string("\xcf\xfa\xed\xfe\x0c\0\0\1", 8)), IsOkAndHolds(kMac));
  const std::string kOthers[] = {
      Elf(1, 1, 3),                                  // 32-bit x86
      Elf(1, 1, 62),                                 // x32
      Elf(1, 1, 40),                                 // 32-bit ARM
      Elf(2, 1, 243),                                // RISC-V
      Elf(2, 1, 21),                                 // ppc64le
      Elf(2, 2, 183),                                // arm64, big-endian
      std::string("\xcf\xfa\xed\xfe\x07\0\0\1", 8),  // a Mac with an Intel processor
  };
  for (const std::string& header : kOthers) {
    EXPECT_THAT(PlatformOfProgram(header), StatusIs(absl::StatusCode::kUnimplemented))
        << absl::CEscape(header);
  }
  const std::string kNone[] = {"",   "#!/bin/sh\n",     "\177EL", "\177ELF\2\1",
                               "MZ", "\xcf\xfa\xed\xfe"};
  for (const std::string& header : kNone) {
    EXPECT_THAT(PlatformOfProgram(header), StatusIs(absl::StatusCode::kInvalidArgument))
        << absl::CEscape(header);
  }
}

TEST(NodePlatformTest, ReadsTheHeaderOfAFile) {
  TempDir dir;
  EXPECT_THAT(PlatformOfProgramFile(dir.Write("arm", Elf(2, 1, 183) + "more")), IsOkAndHolds(kArm));
  EXPECT_THAT(PlatformOfProgramFile(dir.Write("script", "#!/bin/sh\n")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(dir.Sub("script"))));
  EXPECT_THAT(PlatformOfProgramFile(dir.Sub("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(dir.Sub("none"))));
  EXPECT_THAT(PlatformOfProgramFile("/proc/self/exe"), IsOkAndHolds(OwnPlatform()));
}

}  // namespace
}  // namespace gpuctl
