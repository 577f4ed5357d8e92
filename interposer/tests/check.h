/* SPDX-License-Identifier: Apache-2.0
 *
 * One-line checks for the C unit tests: a failed one says where and ends the program. */
#ifndef TESSERA_CHECK_H
#define TESSERA_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

#define CHECK_EQUAL(left, right)                                                                           \
  do {                                                                                                     \
    long long left_ = (long long)(left), right_ = (long long)(right);                                      \
    if (left_ != right_) {                                                                                 \
      fprintf(stderr, "%s:%d: %s is %lld, expected %s = %lld\n", __FILE__, __LINE__, #left, left_, #right, \
              right_);                                                                                     \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

#endif
