// Checks of the test programs: each ends the program with what went wrong.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <halocline.hpp>

#include <cstdio>
#include <cstdlib>

#define TRUE(condition)                                                                \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);   \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (false)

// The expression throws an error of that status, with that text in its message.
#define THROWS(wanted, text, expression)                                                                                   \
  do {                                                                                                                     \
    std::string thrown_ = "nothing";                                                                                       \
    try {                                                                                                                  \
      (void)(expression);                                                                                                  \
    } catch (const halocline::error &error_) {                                                                             \
      thrown_ = halocline::status_name(error_.status()) + ": " + error_.what();                                            \
      if (error_.status() == (wanted) && std::string(error_.what()).find(text) != std::string::npos) break;                \
    }                                                                                                                      \
    std::fprintf(stderr, "%s:%d: %s: threw %s\n  wanted %s with \"%s\"\n", __FILE__, __LINE__, #expression,                \
                 thrown_.c_str(), #wanted, text);                                                                          \
    std::exit(1);                                                                                                          \
  } while (false)

namespace hc = halocline;

#endif
