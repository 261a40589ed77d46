/* Checks of the test programs: each ends the program with what went wrong. */
#ifndef CHECK_H
#define CHECK_H

#include <halocline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                                                                             \
  do {                                                                                                                       \
    halocline_status status_ = (call);                                                                                       \
    if (status_ != HALOCLINE_OK) {                                                                                           \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, halocline_status_name(status_),                      \
              halocline_error_message());                                                                                    \
      exit(1);                                                                                                               \
    }                                                                                                                        \
  } while (0)

#define TRUE(condition)                                                                                                      \
  do {                                                                                                                       \
    if (!(condition)) {                                                                                                      \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                              \
      exit(1);                                                                                                               \
    }                                                                                                                        \
  } while (0)

/* The call returns that status, with that text in its message. */
#define REFUSED(wanted, text, call)                                                                                          \
  do {                                                                                                                       \
    halocline_status status_ = (call);                                                                                       \
    if (status_ != (wanted) || strstr(halocline_error_message(), text) == NULL) {                                            \
      fprintf(stderr, "%s:%d: %s: returned %s: %s\n  wanted %s with \"%s\"\n", __FILE__, __LINE__, #call,                    \
              halocline_status_name(status_), halocline_error_message(), #wanted, text);                                     \
      exit(1);                                                                                                               \
    }                                                                                                                        \
  } while (0)

#endif
