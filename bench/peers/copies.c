/* Strips of halo cells copied as fast as memory permits: no messages, no second copy. Used by cubed_sphere.py. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A strip of three dimensions, its slowest one first, and the strip that it copies. Strides are in bytes. */
struct strip {
  char *to;
  const char *from;
  ptrdiff_t shape[3], to_strides[3], from_strides[3];
};

/* Rows ahead whose cache lines are prefetched. */
enum { AHEAD = 12 };

/* Copies rows of `columns` elements of 8 bytes, which the compiler knows. */
static inline __attribute__((always_inline)) void rows(const struct strip *s, char *to, const char *from, ptrdiff_t columns, int fetch) {
  const ptrdiff_t down = s->to_strides[1], across = s->to_strides[2];
  const ptrdiff_t from_down = s->from_strides[1], from_across = s->from_strides[2];
  for (ptrdiff_t i = 0; i < s->shape[1]; i++, to += down, from += from_down) {
    if (fetch) {
      __builtin_prefetch(from + AHEAD * from_down, 0);
      __builtin_prefetch(to + AHEAD * down, 1);
    }
    for (ptrdiff_t j = 0; j < columns; j++) {
      *(uint64_t *)(to + j * across) = *(const uint64_t *)(from + j * from_across);
    }
  }
}

/* Copies one step along the slowest dimension. */
static void plane(const struct strip *s, ptrdiff_t step, int fetch) {
  char *to = s->to + step * s->to_strides[0];
  const char *from = s->from + step * s->from_strides[0];
  if (s->to_strides[2] == 8 && s->from_strides[2] == 8 && s->shape[2] > 8) {
    for (ptrdiff_t i = 0; i < s->shape[1]; i++) {
      memcpy(to + i * s->to_strides[1], from + i * s->from_strides[1], 8 * (size_t)s->shape[2]);
    }
    return;
  }
  switch (s->shape[2]) {
  case 1: rows(s, to, from, 1, fetch); break;
  case 2: rows(s, to, from, 2, fetch); break;
  case 3: rows(s, to, from, 3, fetch); break;
  default: rows(s, to, from, s->shape[2], 0); break;
  }
}

/* Copies groups of strips: the strips of a group take `at_once` steps along their slowest dimension in turn, so that cache lines that
 * several of them touch are fetched once. */
void copy_strips(const struct strip *strips, const size_t *groups, size_t count, ptrdiff_t at_once, int fetch) {
  for (size_t group = 0; group < count; strips += groups[group++]) {
    ptrdiff_t steps = 0;
    for (size_t at = 0; at < groups[group]; at++) {
      steps = strips[at].shape[0] > steps ? strips[at].shape[0] : steps;
    }
    for (ptrdiff_t begin = 0; begin < steps; begin += at_once) {
      for (size_t at = 0; at < groups[group]; at++) {
        for (ptrdiff_t step = begin; step < begin + at_once && step < strips[at].shape[0]; step++) {
          plane(&strips[at], step, fetch);
        }
      }
    }
  }
}
