/* The cubed sphere by its geometry, in an equiangular projection: which place lies behind a side is found by the places of the sides. */
#ifndef SPHERE_H
#define SPHERE_H

#include "tiles.h"

typedef struct {
  double x, y, z;
} vector;

static double dot(vector a, vector b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

/* The unit vector to a place of a tile, whose coordinates are 0 to 1 along both axes. */
static vector point_of(size_t tile, const double along[2]) {
  const double b = tan((along[0] - 0.5) * 1.5707963267948966), a = tan((along[1] - 0.5) * 1.5707963267948966);
  const vector on_cube[6] = {{1, a, b}, {-a, 1, b}, {-a, -b, 1}, {-1, -b, -a}, {b, -1, -a}, {b, a, -1}};
  const vector at = on_cube[tile];
  const double length = sqrt(dot(at, at));
  return (vector){at.x / length, at.y / length, at.z / length};
}

/* A function that differs from place to place. */
static double scalar_of(vector at) { return sin(3 * at.x + 1) + 2 * cos(2 * at.y - at.z) + at.x * at.z; }

/* How coordinates along an axis of a tile change with the place. */
static vector tangent_of(size_t tile, const double along[2], size_t axis) {
  double ahead[2] = {along[0], along[1]}, back[2] = {along[0], along[1]};
  ahead[axis] += 1e-6, back[axis] -= 1e-6;
  const vector a = point_of(tile, ahead), b = point_of(tile, back);
  return (vector){(a.x - b.x) / 2e-6, (a.y - b.y) / 2e-6, (a.z - b.z) / 2e-6};
}

/* The component of a rotation's velocity along an axis of the tile: covariant, which is continuous along a side, or contravariant, which is
 * so across it. */
static double velocity_of(size_t tile, const double along[2], size_t axis, int is_covariant) {
  const vector at = point_of(tile, along), turn = {0.3, -0.5, 0.8};
  const vector velocity = {turn.y * at.z - turn.z * at.y, turn.z * at.x - turn.x * at.z, turn.x * at.y - turn.y * at.x};
  const vector own = tangent_of(tile, along, axis), other = tangent_of(tile, along, 1 - axis);
  if (is_covariant) {
    return dot(own, velocity);
  }
  const double across = dot(own, other), determinant = dot(own, own) * dot(other, other) - across * across;
  return (dot(other, other) * dot(own, velocity) - across * dot(other, velocity)) / determinant;
}

/* A place of a tile, and which of its axes, and which direction along it, each axis of another tile continues as. */
typedef struct {
  size_t tile;
  double along[2];
  size_t axes[2];
  double signs[2];
} continuation;

static int is_near(vector a, vector b) { return fabs(a.x - b.x) + fabs(a.y - b.y) + fabs(a.z - b.z) < 1e-9; }

/* Whether points of two sides are the same. */
static int is_same_side(size_t tile, size_t axis, double side, size_t other, size_t other_axis, double other_side, int reversed) {
  for (double at = 0.1; at < 1; at += 0.6) {
    double here[2], there[2];
    here[axis] = side, here[1 - axis] = at;
    there[other_axis] = other_side, there[1 - other_axis] = reversed ? 1 - at : at;
    if (!is_near(point_of(tile, here), point_of(other, there))) {
      return 0;
    }
  }
  return 1;
}

/* The place behind the side that a place of a tile is beyond. */
static continuation beyond(size_t tile, size_t axis, const double along[2]) {
  const double side = along[axis] > 0.5 ? 1 : 0, depth = fabs(along[axis] - side), outwards = side > 0.5 ? 1 : -1;
  for (size_t other = 0; other < 6; other++) {
    for (size_t number = 0; number < 8 && other != tile; number++) {
      const size_t other_axis = number & 1;
      const double other_side = number & 2 ? 1 : 0, inwards = number & 2 ? -1 : 1;
      const int reversed = number >= 4;
      if (is_same_side(tile, axis, side, other, other_axis, other_side, reversed)) {
        continuation found = {.tile = other};
        found.along[other_axis] = other_side + inwards * depth;
        found.along[1 - other_axis] = reversed ? 1 - along[1 - axis] : along[1 - axis];
        found.axes[axis] = other_axis, found.signs[axis] = inwards * outwards;
        found.axes[1 - axis] = 1 - other_axis, found.signs[1 - axis] = reversed ? -1 : 1;
        return found;
      }
    }
  }
  fprintf(stderr, "no tile beside tile %zu\n", tile);
  exit(1);
}

typedef struct {
  size_t n;
  halocline_quantity quantity;
} sphere;

static double on_sphere(const sphere *of, size_t tile, size_t component, const double along[2]) {
  if (of->quantity.components == 1) {
    return scalar_of(point_of(tile, along));
  }
  return velocity_of(tile, along, component, of->quantity.places[0][0] == HALOCLINE_ALONG_CENTRE);
}

static double own_on_sphere(const void *grid, const place *at) {
  const sphere *of = grid;
  const double along[2] = {coordinate(&of->quantity, at, 0) / (double)of->n, coordinate(&of->quantity, at, 1) / (double)of->n};
  return on_sphere(of, at->patch, at->component, along);
}

/* Values of the place on the sphere; none behind the corners of three tiles. */
static double after_on_sphere(const void *grid, const place *at) {
  const sphere *of = grid;
  double along[2];
  int is_beyond[2];
  for (size_t axis = 0; axis < 2; axis++) {
    along[axis] = coordinate(&of->quantity, at, axis) / (double)of->n;
    is_beyond[axis] = along[axis] < -1e-9 || along[axis] > 1 + 1e-9;
  }
  if (is_beyond[0] && is_beyond[1]) {
    return UNFILLED;
  }
  if (!is_beyond[0] && !is_beyond[1]) {
    return on_sphere(of, at->patch, at->component, along);
  }
  const continuation there = beyond(at->patch, is_beyond[0] ? 0 : 1, along);
  if (of->quantity.components == 1) {
    return on_sphere(of, there.tile, 0, there.along);
  }
  return there.signs[at->component] * on_sphere(of, there.tile, there.axes[at->component], there.along);
}

#endif
