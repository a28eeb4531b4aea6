// EXPECT_ERROR(statement, code, "part of the message") checks that the statement throws such an
// Error.

#ifndef TRAINER_TESTS_EXPECT_ERROR_H_
#define TRAINER_TESTS_EXPECT_ERROR_H_

#include <gtest/gtest.h>

#include <string>

#include "trainer/base/error.h"

#define EXPECT_ERROR(statement, expected_code, part)                            \
  do {                                                                          \
    try {                                                                       \
      statement;                                                                \
      ADD_FAILURE() << "no error from " #statement;                             \
    } catch (const ::gpuctl::trainer::Error& caught_error) {                    \
      EXPECT_EQ(caught_error.code(), expected_code) << caught_error.what();     \
      EXPECT_NE(std::string(caught_error.what()).find(part), std::string::npos) \
          << "message: " << caught_error.what();                                \
    }                                                                           \
  } while (false)

#endif  // TRAINER_TESTS_EXPECT_ERROR_H_
