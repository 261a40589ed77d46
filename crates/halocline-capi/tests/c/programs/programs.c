/* Programs that `compiled` calls, by the manifests beside this file. */
void scale(double *a, long n, long s, double factor);
int fail(void);
void first(long long *a, long long begin);
void numbers(double *found, signed char small, unsigned long long large, _Bool is_set, float real, long long length,
             const unsigned short *list);

void scale(double *a, long n, long s, double factor) {
  for (long i = 0; i < n; i++) a[i * s] *= factor;
}

int fail(void) { return 7; }

void first(long long *a, long long begin) { *a = begin; }

void numbers(double *found, signed char small, unsigned long long large, _Bool is_set, float real, long long length,
             const unsigned short *list) {
  (void)list;
  found[0] = small, found[1] = (double)large, found[2] = is_set, found[3] = real, found[4] = (double)length;
}
