# Writes a C++ file with the dashboard's page in it.
#
#   cmake [-DFROM=DIR] [-DMAKE=deploy/dashboard-page [-DMUST=ON]] -DOUT=FILE -P embed_page.cmake
#
# FROM has page.html.gz and page.hashes; with MAKE they are made first. When that fails, because npm
# has no network, the file has no page in it, unless MUST is ON.
cmake_minimum_required(VERSION 3.22)
set(bytes "")
set(script "")
set(style "")
set(result 0)
if(MAKE)
  execute_process(COMMAND ${MAKE} --out ${FROM} RESULT_VARIABLE result OUTPUT_VARIABLE said
    ERROR_VARIABLE said)
  if(NOT result EQUAL 0)
    if(MUST STREQUAL "ON")
      message(FATAL_ERROR "The page of gpuctl dashboard cannot be built:\n${said}")
    endif()
    message(WARNING "gpuctl is built without the page of gpuctl dashboard:\n${said}")
  endif()
endif()
if(FROM AND result EQUAL 0)
  file(READ ${FROM}/page.html.gz bytes HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  # Pieces, because compilers limit the length of a literal.
  string(REGEX REPLACE "(................................................................)" "\\1\"\n    \"" bytes "${bytes}")
  file(STRINGS ${FROM}/page.hashes hashes)
  list(GET hashes 0 script)
  list(GET hashes 1 style)
endif()
file(WRITE ${OUT}.new "// Made by cmake/embed_page.cmake.
#include \"client/dashboard/page.h\"

namespace gpuctl {
namespace {

constexpr char kPage[] =
    \"${bytes}\";

}  // namespace

absl::string_view CompressedPage() { return absl::string_view(kPage, sizeof(kPage) - 1); }
absl::string_view PageScriptHashes() { return \"${script}\"; }
absl::string_view PageStyleHashes() { return \"${style}\"; }

}  // namespace gpuctl
")
file(RENAME ${OUT}.new ${OUT})
