#include "client/verbs/man_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ManVerb Example() {
  ManVerb verb{"logs", "Look", "print a run's output", {}};
  verb.text.usage = "logs RUN [FLAGS]";
  verb.text.description = ".Prints C:\\x.\nGoes on.\n\njob   the job\n      of it";
  verb.text.examples = "  gpuctl logs fox -f";
  verb.text.flags = {{{"-o", "--output"}, "table or json", "Common", true},
                     {{"-f", "--follow"}, "Until it ends", "Options", false},
                     {{"RUN"}, "Its name", "Options", true}};
  return verb;
}

TEST(ManPageTest, HasAllThatTheHelpHas) {
  const std::string page = ManPageOf(Example(), "0.1.0");
  EXPECT_THAT(page, HasSubstr(".SH NAME\ngpuctl\\-logs \\- print a run\\(aqs output\n"));
  EXPECT_THAT(page, HasSubstr("\\fBgpuctl logs\\fR RUN [FLAGS]\n"));
  EXPECT_THAT(page, HasSubstr(".SH DESCRIPTION\n\\&.Prints C:\\ex.\nGoes on.\n.PP\n.RS 2\n.nf\n"
                              "job   the job\n      of it\n.fi\n.RE\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIVALUE\\fR\n"));
  EXPECT_THAT(page, HasSubstr(".SH EXAMPLES\n.RS 2\n.nf\ngpuctl logs fox \\-f\n.fi\n.RE\n"));
  EXPECT_THAT(page, Not(HasSubstr("\n\n")));
  // What all verbs take comes last.
  EXPECT_LT(page.find(".SH ARGUMENTS"), page.find(".SH OPTIONS"));
  EXPECT_LT(page.find(".SH OPTIONS"), page.find(".SH COMMON"));
}

TEST(ManPageTest, TheOverviewNamesEachVerbOnce) {
  const std::string page = ManOverview({Example()}, "0.1.0");
  EXPECT_THAT(page, HasSubstr(".SS Look\n.TP\n.BR gpuctl\\-logs (1)\nprint a run\\(aqs output\n"));
}

}  // namespace
}  // namespace gpuctl
