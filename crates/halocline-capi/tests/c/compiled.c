/* Calls compiled programs. Arguments: the library and the manifest of `scale`, the manifest of `fail`. */
#include "check.h"

#include <stddef.h>

static const halocline_stream none = {0};

static halocline_argument real(double value) {
  halocline_argument argument = HALOCLINE_ARGUMENT_INIT;
  argument.kind = HALOCLINE_ARGUMENT_REAL;
  argument.real = value;
  return argument;
}

/* Loads a program whose manifest lies in a file. */
static halocline_program loaded(const char *library, const char *file) {
  char manifest[2000];
  FILE *opened = fopen(file, "r");
  TRUE(opened != NULL);
  manifest[fread(manifest, 1, sizeof manifest - 1, opened)] = 0;
  fclose(opened);
  halocline_program program;
  OK(halocline_program_load(library, manifest, &program));
  return program;
}

int main(int argc, char **argv) {
  TRUE(argc == 4);
  double a[6] = {1, 2, 3, 4, 5, 6};
  const ptrdiff_t extents[1] = {3}, strides[1] = {2 * sizeof(double)};
  halocline_argument array = HALOCLINE_ARGUMENT_INIT;
  array.kind = HALOCLINE_ARGUMENT_ARRAY;
  array.base = a;
  array.dimensions = 1, array.extents = extents, array.strides = strides;
  array.element = HALOCLINE_F64;

  halocline_program scale;
  OK(halocline_program_load(argv[1], NULL, &scale));
  halocline_argument arguments[2] = {array, real(2)};
  OK(halocline_program_call(scale, arguments, 2, none));
  TRUE(a[0] == 2 && a[1] == 2 && a[2] == 6 && a[4] == 10 && a[5] == 6);
  arguments[0].strides = NULL;
  OK(halocline_program_call(scale, arguments, 2, none));
  TRUE(a[0] == 4 && a[1] == 4 && a[2] == 12 && a[3] == 4 && a[4] == 10);

  /* A prepared call keeps its program. */
  halocline_prepared ready;
  size_t factor;
  OK(halocline_program_position(scale, "factor", &factor));
  TRUE(factor == 1);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "has no argument size", halocline_program_position(scale, "size", &factor));
  OK(halocline_program_prepare(scale, arguments, 2, &ready));
  halocline_program copy = scale;
  OK(halocline_program_free(&scale));
  REFUSED(HALOCLINE_ERROR_HANDLE, "was freed", halocline_program_call(copy, arguments, 2, none));
  OK(halocline_prepared_call(ready, none));
  TRUE(a[0] == 8);
  const halocline_argument half = real(0.5);
  OK(halocline_prepared_set(ready, 1, &half));
  OK(halocline_prepared_call(ready, none));
  TRUE(a[0] == 4);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "argument a of program scale is an array", halocline_prepared_set(ready, 0, &half));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no argument 7", halocline_prepared_set(ready, 7, &half));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "number is no number", halocline_prepared_set(ready, 1, &array));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "number is NULL", halocline_prepared_set(ready, 1, NULL));
  OK(halocline_prepared_call(ready, none));
  TRUE(a[0] == 2);
  OK(halocline_prepared_free(&ready));
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_prepared_call(ready, none));

  /* Wrong arguments are refused before the program is entered. */
  OK(halocline_program_load(argv[1], NULL, &scale));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "lacks argument factor", halocline_program_call(scale, &array, 1, none));
  const ptrdiff_t impossible[4] = {-5, PTRDIFF_MIN, PTRDIFF_MAX, (ptrdiff_t)1 << 60};
  for (int at = 0; at < 4; at++) {
    for (int has_strides = 0; has_strides < 2; has_strides++) {
      halocline_argument wrong[2] = {array, real(2)};
      wrong[0].extents = &impossible[at];
      wrong[0].strides = has_strides ? strides : NULL;
      REFUSED(HALOCLINE_ERROR_ARGUMENT, "no memory has an array of extents", halocline_program_call(scale, wrong, 2, none));
    }
  }
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "arguments is NULL", halocline_program_call(scale, NULL, 2, none));
  arguments[0].element = HALOCLINE_F32;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "elements of type float32", halocline_program_call(scale, arguments, 2, none));
  arguments[0].element = 999;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "argument 0: element is 999", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].extents = NULL;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "argument 0: extents is NULL", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].dimensions = 65;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "dimensions is 65", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].base = NULL;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "argument a of program scale", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].space = HALOCLINE_CUDA;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "in memory of GPU 0", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].space = 5;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "space is 5", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].read_only = 1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "is read-only", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].kind = 9;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "argument 0: kind is 9", halocline_program_call(scale, arguments, 2, none));
  arguments[0] = array, arguments[0].reserved = 1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "reserved is not 0", halocline_program_call(scale, arguments, 2, none));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "program is NULL", halocline_program_load(argv[1], NULL, NULL));
  TRUE(a[0] == 2);

  /* Programs that fail, and libraries that are none. */
  halocline_program fail = loaded(argv[1], argv[3]);
  REFUSED(HALOCLINE_ERROR_PROGRAM, "returned status 7", halocline_program_call(fail, NULL, 0, none));
  REFUSED(HALOCLINE_ERROR_PROGRAM, "none.so", halocline_program_load("none.so", NULL, &fail));
  REFUSED(HALOCLINE_ERROR_PROGRAM, "manifest", halocline_program_load(argv[1], "{", &fail));
  TRUE(strstr(halocline_status_name(HALOCLINE_ERROR_PROGRAM), "PROGRAM") != NULL);
  halocline_program other = loaded(argv[1], argv[2]);
  OK(halocline_program_free(&other));
  OK(halocline_program_free(&fail));
  OK(halocline_program_free(&scale));
  puts("ok");
  return 0;
}
